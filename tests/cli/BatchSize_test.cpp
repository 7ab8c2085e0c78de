#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "base/Gpu.h"
#include "support/ShadowMemory.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kOpen = "--set train_batch_size=auto_batch_size --set global_batch_size=null";

/// Runs whose batch sizes are found by trials, on the CPU.
class BatchSize : public testing::Test {
 protected:
  void SetUp() override {
    const Finished collected = small_.collect();
    ASSERT_EQ(collected.exit_code, 0) << collected.output;
  }
  void TearDown() override { unsetenv("ADTRAIN_FAULT"); }

  /// `report`: that of a run, or of the command alone.
  nlohmann::json found(const std::string& report = "small/batch_sizes") const {
    return nlohmann::json::parse(small_.read("runs/" + report + ".json")).at("train_batch_size");
  }
  std::string weights(const std::string& run) const {
    return small_.read("runs/" + run + "/checkpoints/step-20/model.safetensors");
  }

  SmallRun small_;
};

TEST_F(BatchSize, TheCommandShowsItsTrialsAsTableJsonAndPicture) {
  const Finished finished =
      small_.adtrain("find-batch-size small.yaml --set global_batch_size=null --set batch_size_limit=16");
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("Found 1 CPU rank"), HasSubstr("Power phase - Trial 1: Testing batch size 1"),
                    HasSubstr("Found optimal batch size: 16"), HasSubstr("samples/s"),
                    HasSubstr("--set train_batch_size=16")));
  const nlohmann::json report = found("batch_sizes/small");
  EXPECT_EQ(report.at("batch_size"), 16);
  EXPECT_EQ(report.at("trials").size(), 5U);
  for (const auto& trial : report.at("trials")) EXPECT_GT(trial.at("seconds"), 0) << trial;
  EXPECT_TRUE(std::filesystem::exists(small_.run("batch_sizes") / "small.train_batch_size.png"));
  EXPECT_TRUE(std::filesystem::exists(small_.run("batch_sizes") / "small.train_batch_size.svg"));
  EXPECT_FALSE(std::filesystem::exists(small_.run())) << "which may be a run's that is training now";
}

TEST_F(BatchSize, WhatTheCommandAdvisesTrainsBesideAGlobalBatch) {
  const Finished finished =
      small_.adtrain("find-batch-size small.yaml --set global_batch_size=32 --set batch_size_limit=8");
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  const std::string words = "train with ";
  const size_t place = finished.output.find(words);
  ASSERT_NE(place, std::string::npos) << finished.output;
  const std::string advice =
      finished.output.substr(place + words.size(), finished.output.find('\n', place) - place - words.size());
  EXPECT_EQ(advice, "--set gradient_accumulation_steps=4");
  const Finished trained = small_.adtrain("small.yaml --set global_batch_size=32 " + advice);
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr("8 sequences a micro-batch"));
}

TEST_F(BatchSize, APictureThatCannotBeWrittenIsNotPointedTo) {
  const Finished finished = small_.adtrain(
      "find-batch-size small.yaml --set global_batch_size=null --set batch_size_limit=2 "
      "--set runs_dir=small.yaml/runs");
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(finished.output, AllOf(HasSubstr("is not written down"), HasSubstr("done: train with --set"),
                                     Not(HasSubstr(".png"))));
}

TEST_F(BatchSize, TrainingIsThenThatOfTheNumber) {
  const std::string limit = std::string(kOpen) + " --set batch_size_limit=8 --set tf_dropout=0.1";
  for (const int ranks : {1, 2}) {
    const std::string name = std::to_string(ranks);
    const auto train = [&](const std::string& arguments) {
      return ranks == 1 ? small_.adtrain(arguments) : small_.mpirun(ranks, arguments);
    };
    const Finished automatic = train("small.yaml " + limit + " --set run_name=auto" + name);
    ASSERT_EQ(automatic.exit_code, 0) << automatic.output;
    EXPECT_THAT(automatic.output, HasSubstr("8 sequences a micro-batch"));
    const Finished given = train(
        "small.yaml --set global_batch_size=null --set tf_dropout=0.1 "
        "--set train_batch_size=8 --set run_name=given" +
        name);
    ASSERT_EQ(given.exit_code, 0) << given.output;
    EXPECT_EQ(weights("auto" + name), weights("given" + name));
    EXPECT_THAT(small_.read("runs/auto" + name + "/config.yaml"), HasSubstr("train_batch_size: 8"));
    for (const auto& record : small_.metrics("auto" + name, "peak_memory")) {
      ASSERT_EQ(record.at("peak_memory").size(), static_cast<size_t>(ranks));
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_GE(record.at("peak_memory")[rank], record.at("start_memory")[rank]);
        EXPECT_GT(record.at("current_memory")[rank], 100'000'000) << "libtorch alone is larger";
      }
    }
  }
}

TEST_F(BatchSize, AGlobalBatchStaysAndTheAccumulationFollows) {
  const Finished finished =
      small_.mpirun(2, "small.yaml --set train_batch_size=auto_batch_size --set batch_size_limit=5");
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("4 sequences a micro-batch"), HasSubstr("24 sequences an optimizer step"),
                    HasSubstr("gradient_accumulation_steps is 3")));
}

TEST_F(BatchSize, WhatWasFoundIsKnownTheNextTimeAndKeptOnResume) {
  const std::string limit =
      std::string("small.yaml ") + kOpen + " --set batch_size_limit=8 --set cpu_memory_limit_gb=4";
  const Finished first = small_.adtrain(limit + " --stop-after 10");
  ASSERT_EQ(first.exit_code, 75) << first.output;
  const Finished again = small_.adtrain(limit + " --set run_name=other --set lr=1e-3 --stop-after 1");
  EXPECT_THAT(again.output, AllOf(HasSubstr("8 was found before"), Not(HasSubstr("Power phase"))));
  const Finished anew =
      small_.adtrain(limit + " --set run_name=third --set batch_size_cache=false --stop-after 1");
  EXPECT_THAT(anew.output, HasSubstr("Power phase"));
  // A run that is continued keeps its batch, whatever would be found now.
  const std::string smaller = limit + " --set batch_size_cache=false --set batch_size_limit=4";
  const Finished resumed = small_.adtrain(smaller + " --resume --stop-after 15");
  ASSERT_EQ(resumed.exit_code, 75) << resumed.output;
  EXPECT_THAT(resumed.output, AllOf(HasSubstr("8 sequences a micro-batch"), Not(HasSubstr("Power phase"))));
  // On another number of ranks its global batch stays.
  const Finished on_two = small_.mpirun(2, smaller + " --resume");
  ASSERT_EQ(on_two.exit_code, 0) << on_two.output;
  EXPECT_THAT(on_two.output,
              AllOf(HasSubstr("4 sequences a micro-batch"), HasSubstr("8 sequences an optimizer step")));
}

TEST_F(BatchSize, SizesThatWereGivenAreFoundOnResumeForTheSameGlobalBatch) {
  ASSERT_EQ(small_.adtrain("small.yaml --stop-after 10").exit_code, 75);
  const Finished resumed = small_.adtrain(
      "small.yaml --set train_batch_size=auto_batch_size --set batch_size_limit=8 --resume --stop-after 15");
  ASSERT_EQ(resumed.exit_code, 75) << resumed.output;
  EXPECT_THAT(resumed.output, AllOf(HasSubstr("Power phase"), HasSubstr("8 sequences a micro-batch"),
                                    HasSubstr("24 sequences an optimizer step")));
  // Another global batch is another run, as ever.
  const Finished other =
      small_.adtrain("small.yaml --set train_batch_size=auto_batch_size --set global_batch_size=48 --resume");
  EXPECT_EQ(other.exit_code, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr("global_batch_size"));
}

TEST_F(BatchSize, ALimitOfMemoryIsHeld) {
  if (kShadowMemory) GTEST_SKIP() << "a sanitizer takes memory of its own";
  // Wide enough that a batch takes more than the program itself.
  const std::string wide =
      "find-batch-size small.yaml --set global_batch_size=null --set tf_n_embd=256 "
      "--set tf_n_inner=1024 --set n_transit=64 ";
  ASSERT_EQ(small_.adtrain(wide + "--set batch_size_limit=1 --set run_name=one").exit_code, 0);
  const double one = found("batch_sizes/one").at("trials")[0].at("peak_bytes").get<double>() / 1e9;
  const auto with_limit = [&](const std::string& name, double gigabytes) {
    return small_.adtrain(wide + "--set run_name=" + name +
                          " --set cpu_memory_limit_gb=" + std::to_string(gigabytes));
  };
  const Finished tight = with_limit("tight", one + 0.15), wider = with_limit("wider", one + 0.3);
  ASSERT_EQ(tight.exit_code, 0) << tight.output;
  ASSERT_EQ(wider.exit_code, 0) << wider.output;
  EXPECT_TRUE(found("batch_sizes/tight").at("limited_by_memory"));
  EXPECT_GT(found("batch_sizes/wider").at("largest_that_fits"),
            found("batch_sizes/tight").at("largest_that_fits"));
  const nlohmann::json report = found("batch_sizes/tight");
  for (const auto& trial : report.at("trials")) {
    if (trial.at("fits")) {
      EXPECT_LT(trial.at("peak_bytes"), (one + 0.15) * 1e9);
    }
  }
  const Finished nothing = with_limit("nothing", one / 3);
  EXPECT_EQ(nothing.exit_code, 8) << nothing.output;
  EXPECT_THAT(nothing.output,
              AllOf(HasSubstr("not even a batch of 1 fits"), HasSubstr("test_batch_size: 64")));
}

TEST_F(BatchSize, ARankWithoutMemoryInAnyPhaseOfAStepHarmsNobody) {
  for (const std::string moment : {"", ":forward", ":backward", ":gradients", ":optimizer"}) {
    // In a search the step is the batch size that is tried.
    setenv("ADTRAIN_FAULT", ("out_of_memory" + moment + "@1:13-").c_str(), 1);
    const Finished finished =
        small_.mpirun(2, "find-batch-size small.yaml --set global_batch_size=null --set batch_size_limit=64");
    ASSERT_EQ(finished.exit_code, 0) << moment << "\n" << finished.output;
    EXPECT_EQ(found("batch_sizes/small").at("largest_that_fits"), 12) << moment;
    EXPECT_EQ(found("batch_sizes/small").at("batch_size"), 11) << moment;
    EXPECT_THAT(finished.output, HasSubstr("out of memory"));
  }
  setenv("ADTRAIN_FAULT", "out_of_memory@0:1-", 1);
  const Finished nothing = small_.mpirun(2, "find-batch-size small.yaml --set global_batch_size=null");
  EXPECT_EQ(nothing.exit_code, 8) << nothing.output;
}

/// The run's folder may be that of a run, of which it says nothing.
TEST_F(BatchSize, ASearchThatFailsLeavesNoFailureInTheRunsFolder) {
  setenv("ADTRAIN_FAULT", "kill@1:4", 1);
  const Finished failed = small_.mpirun(2, "find-batch-size small.yaml --set global_batch_size=null");
  EXPECT_NE(failed.exit_code, 0) << failed.output;
  EXPECT_THAT(failed.output, HasSubstr("rank 1 of 2 failed first"));
  EXPECT_FALSE(std::filesystem::exists(small_.run()));
}

TEST_F(BatchSize, TrainingThatRunsOutOfMemorySaysWhatHeldItAndWhatToChange) {
  setenv("ADTRAIN_FAULT", "out_of_memory:backward@0:12", 1);
  const Finished finished = small_.adtrain("small.yaml");
  EXPECT_EQ(finished.exit_code, 8);
  EXPECT_THAT(finished.output, AllOf(HasSubstr("1024.0 TiB were asked for in one piece"),
                                     HasSubstr(" GB in use at the most; "), HasSubstr("ulimit -v"),
                                     HasSubstr("A micro-batch has 24 sequences")));
  setenv("ADTRAIN_FAULT", "", 1);
  EXPECT_EQ(small_.adtrain("small.yaml --resume").exit_code, 0) << "step 10 was saved";
}

TEST_F(BatchSize, TheHeldOutBatchIsFoundToo) {
  const Finished finished = small_.adtrain(
      "small.yaml --set test_batch_size=auto_batch_size --set batch_size_limit=32 --stop-after 1");
  ASSERT_EQ(finished.exit_code, 75) << finished.output;
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("finding test_batch_size"), HasSubstr("Found optimal batch size: 32")));
  EXPECT_THAT(small_.read("runs/small/config.yaml"), HasSubstr("test_batch_size: 32"));
}

TEST_F(BatchSize, TheGuidesMapIsUnderstood) {
  small_.write("guide.yaml",
               "include: small.yaml\nglobal_batch_size: null\nbatch_size_limit: 4\n"
               "experiment:\n  batch_size: 'auto_batch_size'\n  batch_size_safety_margin: 0.8\n");
  const Finished automatic = small_.adtrain("guide.yaml --stop-after 1");
  ASSERT_EQ(automatic.exit_code, 75) << automatic.output;
  EXPECT_THAT(automatic.output, HasSubstr("80.0% safety margin"));
  EXPECT_THAT(small_.read("runs/small/config.yaml"), HasSubstr("train_batch_size: 4"));
  small_.write("guide.yaml", "include: small.yaml\nglobal_batch_size: null\nexperiment:\n  batch_size: 6\n");
  const Finished whole = small_.adtrain("guide.yaml --set run_name=six --stop-after 1");
  ASSERT_EQ(whole.exit_code, 75) << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("6 sequences a micro-batch"));
  small_.write("guide.yaml", "include: small.yaml\nexperiment:\n  bach_size: 6\n");
  const Finished slip = small_.adtrain("validate guide.yaml");
  EXPECT_EQ(slip.exit_code, 2);
  EXPECT_THAT(slip.output, HasSubstr("experiment.bach_size"));
}

TEST_F(BatchSize, AMicroBatchThatHasNoEffectIsRefused) {
  for (const char* const command : {"validate small.yaml", "small.yaml", "sweep small.yaml --seeds 2"}) {
    const Finished refused = small_.adtrain(std::string(command) + " --set train_batch_size=4");
    EXPECT_EQ(refused.exit_code, 2) << command;
    EXPECT_THAT(refused.output, AllOf(HasSubstr("train_batch_size: found 4, which has no effect beside "
                                                "global_batch_size: 24"),
                                      HasSubstr("--set global_batch_size=null")));
  }
  EXPECT_EQ(
      small_.adtrain("validate small.yaml --set global_batch_size=null --set train_batch_size=4").exit_code,
      0);
  small_.write("both.yaml", "include: small.yaml\ntrain_batch_size: 4\n");
  const Finished both = small_.adtrain("validate both.yaml");
  EXPECT_EQ(both.exit_code, 0);
  EXPECT_THAT(both.output, HasSubstr("both.yaml:2: train_batch_size has no effect beside small.yaml:"));
  small_.write("one.yaml", "include: small.yaml\ntrain_batch_size: 4\nglobal_batch_size: 8\n");
  EXPECT_THAT(small_.adtrain("validate one.yaml").output, Not(HasSubstr("has no effect")));
}

TEST_F(BatchSize, PposBatchIsNotTakenForTheTrainings) {
  const std::string remark = "the micro-batch of training is train_batch_size";
  EXPECT_THAT(small_.adtrain("validate small.yaml").output, Not(HasSubstr(remark)));
  EXPECT_THAT(small_.adtrain("validate small.yaml --set batch_size=20").output, HasSubstr(remark));
  small_.write("plain.yaml", "env: darkroom\nbatch_size: 50\n");
  EXPECT_THAT(small_.adtrain("validate plain.yaml").output, HasSubstr(remark));
}

}  // namespace
}  // namespace adtrain
