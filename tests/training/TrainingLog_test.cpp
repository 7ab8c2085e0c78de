#include "training/TrainingLog.h"

#include <cmath>
#include <cstdio>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

nlohmann::json last_record(const std::filesystem::path& metrics) {
  std::istringstream lines(read_file(metrics));
  nlohmann::json record;
  for (std::string line; std::getline(lines, line);) record = nlohmann::json::parse(line);
  return record;
}

/// The log of a run in a folder of its own.
struct FolderOfARun {
  TemporaryFolder folder;
  Console silent{{.enabled = false}};
  TrainingLog log{silent, TrainingLog::Paths{folder.path() / "metrics.jsonl", folder.path() / "tensorboard",
                                             folder.path() / "loss_curve"}};
};

/// A run of 24 sequences a step that goes on after step 100 with 48: the share of either report is its own.
TEST(TrainingLog, SequencesASecondAreThoseSinceTheLastReport) {
  FolderOfARun run;
  const TemporaryFolder& folder = run.folder;
  TrainingLog& log = run.log;
  log.begin(100, 2400, 200);
  TrainingFigures figures;
  figures.loss.loss = 1;
  for (int64_t step = 110; step <= 120; step += 10) {
    figures.step = step;
    figures.sequences = 2400 + 48 * (step - 100);
    log.trained(figures);
    const nlohmann::json record = last_record(folder.path() / "metrics.jsonl");
    EXPECT_NEAR(record["sequences_per_second"].get<double>() / record["steps_per_second"].get<double>(), 48,
                1e-6)
        << step;
  }
}

TEST(TrainingLog, AnIntervalWithoutAFiniteLossIsRecordedAndNotDrawn) {
  FolderOfARun run;
  const TemporaryFolder& folder = run.folder;
  TrainingLog& log = run.log;
  log.begin(0, 0, 3);
  TrainingFigures figures;
  for (figures.step = 1; figures.step <= 3; ++figures.step) {
    figures.sequences = figures.step;
    figures.loss.loss = figures.step == 2 ? std::nan("") : 1.0;
    log.trained(figures);
    EXPECT_EQ(last_record(folder.path() / "metrics.jsonl")["loss"].is_null(), figures.step == 2);
  }
  log.end(/*finished=*/true);
  EXPECT_EQ(read_file(folder.path() / "loss_curve.svg").find("nan"), std::string::npos);
}

TEST(TrainingLog, AnAccuracyIsRecordedWhereThereIsOne) {
  FolderOfARun run;
  const std::filesystem::path metrics = run.folder.path() / "metrics.jsonl";
  run.log.begin(0, 0, 2);
  TrainingFigures figures;
  for (figures.step = 1; figures.step <= 2; ++figures.step) {
    const bool whole = figures.step == 1;
    figures.loss = {.loss = 1, .accuracy = whole ? std::optional(0.25) : std::nullopt};
    run.log.trained(figures);
    EXPECT_EQ(last_record(metrics).contains("accuracy"), whole);
    EXPECT_FALSE(whole && last_record(metrics)["accuracy"] != 0.25);
    run.log.held_out(figures.step, figures.loss);
    EXPECT_EQ(last_record(metrics).contains("test_accuracy"), whole);
    EXPECT_EQ(last_record(metrics)["test_loss"], 1.0);
  }
}

TEST(TrainingLog, SlowRanksAreRecordedWhileThereAreAny) {
  FolderOfARun run;
  const std::filesystem::path metrics = run.folder.path() / "metrics.jsonl";
  run.log.begin(0, 0, 3);
  TrainingFigures figures;
  figures.step = 1;
  figures.slow_ranks = {{.rank = 3, .lost_share = 0.25, .cause = SlowCause::kGpuClock}};
  run.log.trained(figures);
  EXPECT_EQ(last_record(metrics)["slow_ranks"],
            nlohmann::json::parse(R"([{"rank": 3, "lost_share": 0.25, "cause": "gpu_clock"}])"));
  figures.step = 2;
  figures.slow_ranks.clear();
  run.log.trained(figures);
  EXPECT_FALSE(last_record(metrics).contains("slow_ranks"));
}

/// The last line that a run prints has its last held-out loss, which is measured after the last report.
TEST(TrainingLog, TheProgressLineHasTheNewestHeldOutLoss) {
  const TemporaryFolder folder;
  std::FILE* const out = std::tmpfile();
  Console console{{.out = out}};
  TrainingLog log(console, TrainingLog::Paths{folder.path() / "metrics.jsonl", folder.path() / "tensorboard",
                                              folder.path() / "loss_curve"});
  log.begin(0, 0, 2);
  TrainingFigures figures;
  for (figures.step = 1; figures.step <= 2; ++figures.step) {
    log.trained(figures);
    log.held_out(figures.step, {.loss = 1.0 / static_cast<double>(figures.step)});
  }
  log.end(/*finished=*/true);
  std::rewind(out);
  char text[4096] = "";
  const size_t length = std::fread(text, 1, sizeof text - 1, out);
  std::fclose(out);
  EXPECT_NE(std::string(text, length).find("test loss 0.5000"), std::string::npos) << text;
}

TEST(TrainingLog, ReturnsAreRecordedOfTheSidesThatHaveTasks) {
  FolderOfARun run;
  const std::filesystem::path metrics = run.folder.path() / "metrics.jsonl";
  run.log.begin(0, 0, 20);
  run.log.returns(10, {.held_out = ContextReturns{.first_episode = 0.25, .last_ten = 3.5},
                       .trained = ContextReturns{.first_episode = 0.5, .last_ten = 4.5}});
  nlohmann::json record = last_record(metrics);
  record.erase("time");
  EXPECT_EQ(record,
            nlohmann::json::parse(R"({"step": 10, "test_return": 3.5, "test_return_first_episode": 0.25,
                                              "train_return": 4.5, "train_return_first_episode": 0.5})"));
  run.log.returns(20, {.held_out = std::nullopt, .trained = ContextReturns{.last_ten = 5}});
  EXPECT_FALSE(last_record(metrics).contains("test_return"));
  EXPECT_EQ(last_record(metrics)["train_return"], 5);
  run.log.end(/*finished=*/false);
  EXPECT_NE(read_file(run.folder.path() / "metrics.prom").find("adtrain_train_return{"), std::string::npos);
}

TEST(TrainingLog, MemoryIsRecordedByRankAndBySample) {
  FolderOfARun run;
  const TemporaryFolder& folder = run.folder;
  TrainingLog& log = run.log;
  log.begin(0, 0, 2);
  TrainingFigures figures;
  figures.step = 1;
  figures.micro_batch = 4;
  figures.memory = {{.start = 100, .peak = 500, .current = 300, .split = {.parameters = 100, .other = 200}},
                    {.start = 200, .peak = 1000, .current = 400, .split = {.graph = 7, .other = 393}}};
  log.trained(figures);
  const nlohmann::json record = last_record(folder.path() / "metrics.jsonl");
  EXPECT_EQ(record["start_memory"], nlohmann::json({100, 200}));
  EXPECT_EQ(record["peak_memory"], nlohmann::json({500, 1000}));
  EXPECT_EQ(record["current_memory"], nlohmann::json({300, 400}));
  EXPECT_EQ(record["memory_parts"]["parameters"], nlohmann::json({100, 0}));
  EXPECT_EQ(record["memory_parts"]["graph"], nlohmann::json({0, 7}));
  EXPECT_EQ(record["memory_parts"]["other"], nlohmann::json({200, 393}));
  EXPECT_EQ(record["memory_parts"].size(), 8U);
  EXPECT_NE(read_file(folder.path() / "metrics.prom").find(",rank=\"1\"} 1000\n"), std::string::npos);
  EXPECT_EQ(record["memory_per_sample"], 200) << "of the rank that needs most";
}

}  // namespace
}  // namespace adtrain
