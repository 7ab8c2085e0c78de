#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "SmallRun.h"

namespace adtrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A run, and the document that it printed on standard output.
struct WithResult {
  Finished finished;
  json result;
  std::string errors;  ///< standard error
};

class Tracking : public testing::Test {
 protected:
  void SetUp() override {
    const Finished collected = small_.collect();
    ASSERT_EQ(collected.exit_code, 0) << collected.output;
  }

  /// Lines of bash whose command writes its standard output to the file `out`, and its errors to `err`.
  WithResult run(const std::string& command) const {
    WithResult run;
    run.finished = small_.shell("export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n" +
                                command + " >out 2>err");
    run.errors = small_.read("err");
    run.result = json::parse(small_.read("out"), nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(run.result.is_object()) << small_.read("out") << run.errors;
    return run;
  }

  /// All TensorBoard files of the run.
  std::string events() const {
    std::string bytes;
    for (const auto& file : std::filesystem::directory_iterator(small_.run() / "tensorboard")) {
      bytes += read_file(file.path());
    }
    return bytes;
  }

  SmallRun small_;
};

constexpr const char* kTwoRanks = "mpirun --oversubscribe --bind-to none -np 2 ";

TEST_F(Tracking, EveryLineOfTheMetricsHasATime) {
  ASSERT_EQ(small_.adtrain("small.yaml").exit_code, 0);
  double before = 1.7e9;
  const std::vector<json> records = small_.metrics("small", "step");
  ASSERT_EQ(records.size(), 22U);  // 20 steps, two held-out losses
  for (const json& record : records) {
    ASSERT_TRUE(record.contains("time")) << record;
    EXPECT_GE(record["time"].get<double>(), before);
    before = record["time"];
  }
}

TEST_F(Tracking, TheRecordHoldsConfigurationVersionAndEveryStart) {
  ASSERT_EQ(small_.adtrain("small.yaml --stop-after 10").exit_code, 75);
  EXPECT_THAT(events(), AllOf(HasSubstr("_hparams_/session_start_info"), HasSubstr("tf_n_layer")));
  EXPECT_THAT(events(), Not(HasSubstr("_hparams_/session_end_info"))) << "it is not done";
  ASSERT_EQ(small_.mpirun(2, "small.yaml --resume --set lr=1e-3").exit_code, 0);
  EXPECT_THAT(events(), HasSubstr("_hparams_/session_end_info"));
  const json record = json::parse(small_.read("runs/small/run.json"));
  EXPECT_EQ(record["run"], "small");
  EXPECT_EQ(record["configuration"]["lr"], 1e-3);
  EXPECT_EQ(record["configuration"]["env"], "darkroom");
  EXPECT_EQ(record["configuration"]["tf_n_layer"], 2);
  ASSERT_EQ(record["starts"].size(), 2U);
  const json& first = record["starts"][0];
  const json& second = record["starts"][1];
  EXPECT_EQ(first["after_step"], 0);
  EXPECT_EQ(first["ranks"], 1);
  EXPECT_EQ(second["after_step"], 10);
  EXPECT_EQ(second["ranks"], 2);
  EXPECT_EQ(second["launcher"], "mpirun");
  EXPECT_EQ(second["device"], "CPU");
  EXPECT_GE(second["time"].get<double>(), first["time"].get<double>());
  const Finished version = small_.adtrain("--version");
  for (const char* name : {"version", "build", "NCCL"}) {
    EXPECT_THAT(version.output, HasSubstr(first["program"][name].get<std::string>())) << name;
  }
  if (first["program"]["commit"].is_string()) {
    EXPECT_THAT(version.output, HasSubstr(first["program"]["commit"].get<std::string>()));
  }
  ASSERT_EQ(small_.adtrain("small.yaml --overwrite").exit_code, 0);
  EXPECT_EQ(json::parse(small_.read("runs/small/run.json"))["starts"].size(), 1U);
}

TEST_F(Tracking, OneDocumentSaysHowTheRunEnded) {
  const WithResult stopped = run(std::string(kTwoRanks) + "$adtrain train small.yaml --json --stop-after 10");
  EXPECT_EQ(stopped.finished.exit_code, 75);
  EXPECT_EQ(stopped.result["result"], "stopped");
  EXPECT_EQ(stopped.result["exit_code"], 75);
  EXPECT_EQ(stopped.result["step"], 10);
  const WithResult done = run(std::string(kTwoRanks) + "$adtrain small.yaml --json --resume");
  EXPECT_EQ(done.finished.exit_code, 0);
  EXPECT_EQ(done.result["result"], "finished");
  EXPECT_EQ(done.result["exit_code"], 0);
  EXPECT_EQ(done.result["run"], "small");
  EXPECT_EQ(done.result["step"], 20);
  EXPECT_EQ(done.result["steps"], 20);
  EXPECT_EQ(done.result["saved_step"], 20);
  EXPECT_EQ(done.result["metrics"], small_.metrics("small", "loss").back());
  EXPECT_EQ(done.result["held_out"], small_.metrics("small", "test_loss").back());
  for (const auto& [name, path] : done.result["paths"].items()) {
    EXPECT_TRUE(std::filesystem::exists(small_.folder() / path.get<std::string>())) << name;
  }
  EXPECT_THAT(done.result["paths"]["checkpoint"], "runs/small/checkpoints/step-20");
  EXPECT_FALSE(done.result["paths"].contains("failure"));
  EXPECT_THAT(done.errors, HasSubstr("20/20 steps"));  // progress and banner are there
}

TEST_F(Tracking, OneDocumentSaysWhyTheRunFailed) {
  const WithResult failed =
      run(std::string("ADTRAIN_FAULT=nan_loss@1:12 ") + kTwoRanks + "$adtrain small.yaml --json");
  EXPECT_EQ(failed.finished.exit_code, 6) << failed.errors;
  EXPECT_EQ(failed.result["result"], "failed");
  EXPECT_EQ(failed.result["exit_code"], 6);
  EXPECT_EQ(failed.result["saved_step"], 10);
  EXPECT_EQ(failed.result["failure"]["ranks"], 2);
  EXPECT_EQ(failed.result["paths"]["failure"], "runs/small/failure.txt");
  EXPECT_THAT(
      small_.read("runs/small/failure.txt"),
      AllOf(HasSubstr(failed.result["reason"].get<std::string>()), HasSubstr("start again with --resume")));
  const WithResult killed = run(std::string("ADTRAIN_FAULT=kill@0:5 ") + kTwoRanks +
                                "--mca odls_base_sigkill_timeout 8 $adtrain small.yaml --json "
                                "--set run_name=killed");
  EXPECT_EQ(killed.result["result"], "failed");
  EXPECT_EQ(killed.result["exit_code"], 7);
  EXPECT_EQ(killed.result["failure"]["rank"], 0);  // the other rank speaks
}

TEST_F(Tracking, AnErrorBeforeTheStartIsADocumentToo) {
  const WithResult unknown = run("$adtrain small.yaml --json --set lrr=1");
  EXPECT_EQ(unknown.finished.exit_code, 2);
  EXPECT_EQ(unknown.result["result"], "failed");
  EXPECT_EQ(unknown.result["exit_code"], 2);
  EXPECT_THAT(unknown.result["reason"].get<std::string>(), HasSubstr("lrr"));
  const WithResult by_two =
      run(std::string(kTwoRanks) + "$adtrain small.yaml --json --set traj_dir=elsewhere");
  EXPECT_EQ(by_two.result["exit_code"], 4);
  EXPECT_FALSE(by_two.result.contains("metrics"));
  ASSERT_EQ(small_.adtrain("small.yaml").exit_code, 0);
  const WithResult there_already = run("$adtrain small.yaml --json");
  EXPECT_EQ(there_already.finished.exit_code, 2);
  EXPECT_THAT(there_already.result["reason"].get<std::string>(), HasSubstr("--resume"));
  EXPECT_FALSE(there_already.result.contains("metrics")) << "those of another launch";
}

}  // namespace
}  // namespace adtrain
