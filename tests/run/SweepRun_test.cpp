#include "run/sweep/SweepRun.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/File.h"
#include "base/SymbolicLink.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "evaluation/EvaluationFolder.h"
#include "evaluation/InContextEvaluation.h"
#include "run/EvaluationWorkers.h"
#include "run/OverwrittenRun.h"
#include "run/RunState.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;
using Stage = SweepRun::Stage;

constexpr const char* kConfig = ADTRAIN_SOURCE_DIR "/tests/support/small.yaml";
constexpr int64_t kLastStep = 20;

/// A run of a sweep in a folder that a test fills.
class SweepRunTest : public testing::Test {
 protected:
  SweepRun run_with(const std::vector<std::string>& settings) const {
    return {{"seed-42", settings}, kConfig, folder_.path() / "sweep"};
  }
  /// Leaves the folder as training does.
  static void train(const SweepRun& run, RunState::Stage stage = RunState::Stage::kFinished) {
    write_file_atomically(run.folder().config(), run.config().resolved_yaml());
    write_file_atomically(run.folder().checkpoints() / "step-20" / "manifest.json", "{}");
    RunState state;
    state.stage = stage;
    state.step = kLastStep;
    state.write(run.folder().state());
  }
  /// Leaves the folder as `adtrain evaluate` does when it is given these settings. `tasks_of_worker`: how
  /// many it has.
  static std::string evaluate(const SweepRun& run, const std::vector<std::string>& settings,
                              int64_t tasks_of_worker = 6, int64_t step = kLastStep) {
    std::vector<std::string> notices;
    const RunConfig config = RunConfig::load(run.folder().config(), settings, notices);
    const TaskFamily family = TaskFamily::of(config.environment);
    EvaluationOrigin origin = EvaluationOrigin::of(config.environment, family, step);
    origin.type = evaluated_type(config, at::kCPU);
    origin.quantisation = config.quantisation.identity();
    TaskSplit split = TaskSplit::of(config.environment, family.task_count(), config.tasks);
    if (config.worker.env_worker) {
      origin.worker = EvaluationOrigin::Worker::of(config.worker);
      split.test.resize(static_cast<size_t>(tasks_of_worker));
    }
    const auto identity =
        evaluation_identity(evaluated_tasks(config.evaluation, split), origin, config.evaluation);
    const fs::path folder = evaluation_folder(run.folder().evaluation(), identity, config.evaluation,
                                              /*usual=*/run.config().evaluation);
    nlohmann::ordered_json summary = identity;
    summary["mean"] = {1.0};
    summary["last10_mean"] = 1.0;
    write_file_atomically(folder / "summary.json", summary.dump());
    point_link(run.folder().evaluation() / kLatestEvaluation, folder.filename());
    return folder.filename();
  }

  TemporaryFolder folder_;
};

TEST_F(SweepRunTest, WhatRemainsFollowsFromTheFolder) {
  const SweepRun run = run_with({});
  EXPECT_EQ(run.stage(), Stage::kToTrain);
  train(run, RunState::Stage::kStopped);
  EXPECT_EQ(run.stage(), Stage::kToTrain);
  EXPECT_THAT(run.command_line(Stage::kToTrain, 1), Contains("--resume"));
  train(run);
  EXPECT_EQ(run.stage(), Stage::kToEvaluate);
  evaluate(run, {}, 6, /*step=*/10);
  EXPECT_EQ(run.stage(), Stage::kToEvaluate) << "that is of an earlier step";
  evaluate(run, {});
  EXPECT_EQ(run.stage(), Stage::kDone);
  EXPECT_THAT([&] { static_cast<void>(run_with({"weight_decay=0.5"}).stage()); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("weight_decay"), HasSubstr("--overwrite"))));
}

TEST_F(SweepRunTest, AnEvaluationWithOtherSettingsIsNotTheRunsOwn) {
  const SweepRun run = run_with({});
  train(run);
  const std::vector<std::vector<std::string>> others = {{"eval_task_limit=1"},
                                                        {"eval_tasks=train"},
                                                        {"tasks=0-11"},
                                                        {"eval_episodes=6"},
                                                        {"eval_repeats=2"},
                                                        {"eval_seed=1"},
                                                        {"eval_sampling=greedy"},
                                                        {"eval_temperature=0.5"},
                                                        {"eval_forget_unrewarded=1"},
                                                        {"eval_terminal_observation=true"},
                                                        {"eval_context=rolling"},
                                                        {"torch_dtype=bf16"},
                                                        {"load_in_8bit=true"},
                                                        {"env_split_seed=5"},
                                                        {"env_worker=envs:make"}};
  for (const auto& settings : others) {
    const std::string place = evaluate(run, settings);
    EXPECT_EQ(run.stage(), Stage::kToEvaluate) << settings.front() << " in " << place;
    evaluate(run, {});
    EXPECT_EQ(run.stage(), Stage::kDone) << "after " << settings.front();
    fs::remove_all(run.folder().evaluation());
  }
}

TEST_F(SweepRunTest, TheRunsOwnEvaluationIsKnownWhateverItsSettings) {
  for (const std::vector<std::string>& settings :
       std::vector<std::vector<std::string>>{{"eval_task_limit=2"},
                                             {"eval_temperature=0.5", "eval_forget_unrewarded=1"},
                                             {"torch_dtype=bf16"},
                                             {"eval_context=rolling"},
                                             {"eval_context=rolling", "mixed_precision=bf16", "device=auto"},
                                             {"env_worker=envs:make"}}) {
    const SweepRun run = run_with(settings);
    train(run);
    evaluate(run, {});
    EXPECT_EQ(run.stage(), Stage::kDone) << settings.front();
    evaluate(run, {"eval_temperature=0.25", "eval_task_limit=1"});
    EXPECT_EQ(run.stage(), Stage::kToEvaluate) << settings.front();
    fs::remove_all(run.folder().root);
  }
}

TEST_F(SweepRunTest, FewerTasksOfAWorkerAreNotItsOwn) {
  const SweepRun run = run_with({"env_worker=envs:make"});
  train(run);
  evaluate(run, {"eval_task_limit=1"});
  EXPECT_EQ(run.stage(), Stage::kToEvaluate);
  evaluate(run, {});
  EXPECT_EQ(run.stage(), Stage::kDone);
}

TEST_F(SweepRunTest, ADeletedRunHasNotBegun) {
  const SweepRun run = run_with({});
  train(run);
  evaluate(run, {});
  const RunFolder folder = run.folder();
  for (const fs::path& file :
       {folder.overwritten() / "step-10" / "manifest.json", folder.scores() / "a" / "summary.json",
        folder.tensorboard() / "events", folder.metrics(), folder.record(), folder.requeue(),
        folder.former_config(1), folder.batch_sizes().concat(".json"), folder.root / "notes.txt"})
    write_file_atomically(file, "");
  delete_run(folder);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder.root)) left.push_back(entry.path().filename());
  EXPECT_THAT(left, testing::ElementsAre("notes.txt")) << "which is none of its own";

  const SweepRun other = run_with({"weight_decay=0.5"});
  EXPECT_EQ(other.stage(), Stage::kToTrain);
  EXPECT_THAT(other.command_line(Stage::kToTrain, 1), Not(Contains("--resume")));
}

TEST_F(SweepRunTest, WeightsThatARunBeginsWithAreNotDeleted) {
  const fs::path other = folder_.path() / "sweep" / "seed-43";
  const SweepRun run = run_with({"init_from=" + (other / "checkpoints" / "step-20").string()});
  EXPECT_NO_THROW(refuse_overwritten_weights(run.config(), run.folder()));
  EXPECT_THAT([&] { refuse_overwritten_weights(run.config(), RunFolder{other}); },
              ThrowsMessage<ConfigError>(HasSubstr("init_from: found")));
}

}  // namespace
}  // namespace adtrain
