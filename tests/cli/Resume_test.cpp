#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "base/Gpu.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

std::vector<double> losses(const SmallRun& small, const std::string& run) {
  std::vector<double> values;
  for (const auto& record : small.metrics(run, "loss")) values.push_back(record["loss"].get<double>());
  return values;
}

/// With dropout, so that random states are part of what must continue.
constexpr const char* kLong =
    "small.yaml --set train_timesteps=40 --set tf_dropout=0.1 --set tf_attn_dropout=0.1 --set "
    "ckpt_interval=15";

TEST(Resume, ContinuesBitForBitOnAGpu) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  for (const std::string precision : {"no", "bf16", "fp16"}) {
    const std::string config =
        std::string(kLong) + " --set device=cuda --set summary_interval=5 --set mixed_precision=" + precision;
    const Finished uninterrupted = small.adtrain(config + " --set run_name=whole --overwrite");
    ASSERT_EQ(uninterrupted.exit_code, 0) << uninterrupted.output;
    const Finished stopped = small.adtrain(config + " --stop-after 30 --set run_name=parts --overwrite");
    ASSERT_EQ(stopped.exit_code, 75) << stopped.output;
    const Finished resumed = small.adtrain(config + " --resume --set run_name=parts");
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(small.read("runs/whole/checkpoints/step-40/model.safetensors"),
              small.read("runs/parts/checkpoints/step-40/model.safetensors"))
        << precision;
  }
}

TEST(Resume, ContinuesBitForBitAtTheSameRankCount) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  for (const int ranks : {1, 2}) {
    const std::string whole = "whole" + std::to_string(ranks), parts = "parts" + std::to_string(ranks);
    const std::string config(kLong);
    const Finished uninterrupted = small.mpirun(ranks, config + " --set run_name=" + whole);
    ASSERT_EQ(uninterrupted.exit_code, 0) << uninterrupted.output;
    const Finished stopped = small.mpirun(ranks, config + " --stop-after 30 --set run_name=" + parts);
    ASSERT_EQ(stopped.exit_code, 75) << stopped.output;
    const Finished resumed = small.mpirun(ranks, config + " --resume --set run_name=" + parts);
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("step 30"));
    ASSERT_EQ(losses(small, whole).size(), 40U);
    EXPECT_EQ(losses(small, whole), losses(small, parts)) << ranks << " ranks";
    EXPECT_EQ(small.read("runs/" + whole + "/checkpoints/step-40/model.safetensors"),
              small.read("runs/" + parts + "/checkpoints/step-40/model.safetensors"));
  }
}

TEST(Resume, ContinuesBitForBitWithAComposedNetwork) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const std::string config =
      std::string(kLong) +
      " --set transformer_block=vintix --set first_step=learned --set "
      "gradient_accumulation_steps=2 --set return_interval=20 --set return_episodes=2 --set run_name=";
  const Finished uninterrupted = small.mpirun(2, config + "whole");
  ASSERT_EQ(uninterrupted.exit_code, 0) << uninterrupted.output;
  EXPECT_THAT(uninterrupted.output,
              HasSubstr("AD with vintix blocks (LayerNorm before and at the end, QK norm, GELU, "
                        "ALiBi, biases: all), previous tokens"));
  ASSERT_EQ(small.mpirun(2, config + "parts --stop-after 30").exit_code, 75);
  const Finished resumed = small.mpirun(2, config + "parts --resume");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(losses(small, "whole"), losses(small, "parts"));
  EXPECT_EQ(small.read("runs/whole/checkpoints/step-40/model.safetensors"),
            small.read("runs/parts/checkpoints/step-40/model.safetensors"));
  EXPECT_THAT(small.read("runs/parts/config.yaml"), HasSubstr("tf_positions: alibi"));

  const Finished other = small.adtrain(config + "parts --resume --set tf_positions=rotary");
  EXPECT_EQ(other.exit_code, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr("tf_positions"));
}

TEST(Resume, AllowsAnotherRankCount) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --set run_name=one").exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --stop-after 10 --set run_name=grown").exit_code, 75);
  const Finished resumed = small.mpirun(2, "small.yaml --resume --set run_name=grown");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("step 10, saved by a run of 1 rank where this one has 2 ranks"));
  EXPECT_NEAR(losses(small, "one").back(), losses(small, "grown").back(), 1e-5);
}

TEST(Resume, ASignalStopsBehindACheckpoint) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished stopped =
      run_shell(kAwait + ("cd " + quoted(small.folder().string())) +
                " && { " ADTRAIN_BINARY_DIR
                "/adtrain small.yaml --set train_timesteps=1000000 --set num_workers=0 & "
                "pid=$!; await grep -q '\"step\":12[,}]' runs/small/metrics.jsonl 2>/dev/null; "
                "kill -USR1 $pid; wait $pid; }");
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_THAT(stopped.output, HasSubstr("--resume"));
  const auto last = losses(small, "small").size();
  EXPECT_TRUE(std::filesystem::exists(small.run() / "checkpoints" / ("step-" + std::to_string(last))))
      << last;
}

TEST(Resume, ASignalStopsARunAsSoonAsItsFolderSaysThatItTrains) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  // The shell's own loop looks more often than once in the time between that and the first step.
  const Finished stopped = small.shell(
      "$adtrain small.yaml --set train_timesteps=1000000 & while kill -0 $! && ! [ -s "
      "runs/small/state.json ]; do :; done; kill -TERM $!; wait $!");
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_THAT(small.read("runs/small/state.json"), HasSubstr("stopped"));
  EXPECT_TRUE(std::filesystem::exists(small.run() / "checkpoints" / "latest"));
}

/// The shell hears at once that the run is over, and the process takes longer than that to leave.
TEST(Resume, ASignalWhileTheProcessLeavesChangesNoExitCode) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished finished = small.shell(
      "mkfifo said; $adtrain small.yaml > said & while read -r line; do\n"
      "case $line in done:*) kill -TERM $!; kill -HUP $!;; esac; done < said; wait $!");
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(small.read("runs/small/state.json"), HasSubstr("finished"));
  EXPECT_FALSE(std::filesystem::exists(small.run() / "lock"));
}

TEST(Resume, FallsBackToTheOlderCheckpointWhereTheNewestIsDamaged) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  const auto newest = small.run() / "checkpoints" / "step-20" / "model.safetensors";
  std::string bytes = read_file(newest);
  bytes[bytes.size() - 5] ^= 1;
  write_file(newest, bytes);
  const Finished resumed = small.adtrain("small.yaml --resume");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("step-20"));
  EXPECT_THAT(resumed.output, HasSubstr("step 10"));
}

TEST(Resume, PassesOverAFolderThatIsNamedAfterAnotherStep) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  const auto checkpoints = small.run() / "checkpoints";
  std::filesystem::rename(checkpoints / "step-10", checkpoints / "step-900");
  const auto says_so = testing::AllOf(HasSubstr("step-900"), HasSubstr("is named after step 900"),
                                      HasSubstr("says step 10"), HasSubstr("rename it back to step-10"));
  const Finished resumed = small.adtrain("small.yaml --resume --set train_timesteps=30");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, testing::AllOf(says_so, HasSubstr("passed over a checkpoint"),
                                             HasSubstr("resuming after step 20")));
  for (const char* kept : {"step-20", "step-30", "step-900"})
    EXPECT_TRUE(std::filesystem::exists(checkpoints / kept)) << kept;
  const Finished verified = small.adtrain("checkpoint verify runs/small");
  EXPECT_EQ(verified.exit_code, 5);
  EXPECT_THAT(verified.output, testing::AllOf(says_so, HasSubstr("step-900  UNUSABLE")));
  EXPECT_THAT(small.adtrain("checkpoint list runs/small").output,
              testing::AllOf(says_so, HasSubstr("step-900  UNUSABLE")));
}

TEST(Resume, WithNothingLeftToTrainKeepsTheConfiguration) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  const std::string before = small.read("runs/small/config.yaml");
  const Finished over = small.adtrain("small.yaml --resume --set train_timesteps=10");
  EXPECT_EQ(over.exit_code, 0) << over.output;
  EXPECT_THAT(over.output, HasSubstr("nothing is trained"));
  EXPECT_EQ(small.read("runs/small/config.yaml"), before);
  EXPECT_FALSE(std::filesystem::exists(small.run() / "config.1.yaml"));
}

TEST(Resume, ARunIsNotOverwrittenUnasked) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  const Finished again = small.adtrain("small.yaml");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.output,
              testing::AllOf(HasSubstr("--resume"), HasSubstr("--overwrite"), HasSubstr("run_name")));
  const Finished anew = small.adtrain("small.yaml --overwrite --stop-after 10");
  EXPECT_EQ(anew.exit_code, 75) << anew.output;
  EXPECT_FALSE(std::filesystem::exists(small.run() / "checkpoints" / "step-20"));

  // As a job that began anew and is requeued has it.
  const Finished both = small.adtrain("small.yaml --overwrite --resume");
  EXPECT_EQ(both.exit_code, 0) << both.output;
  EXPECT_THAT(both.output, HasSubstr("resuming after step 10"));
}

TEST(Resume, WithoutACheckpointSaysWhereItLooked) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished resumed = small.adtrain("small.yaml --resume");
  EXPECT_EQ(resumed.exit_code, 5);
  EXPECT_THAT(resumed.output,
              testing::AllOf(HasSubstr("runs/small/checkpoints"), HasSubstr("start it without --resume")));
  // A job that was requeued before it saved a step.
  const Finished both = small.adtrain("small.yaml --resume --overwrite");
  EXPECT_EQ(both.exit_code, 0) << both.output;
  EXPECT_THAT(both.output, HasSubstr("no step is saved yet: the run starts anew"));
}

TEST(Resume, WhatChangesTheMeaningIsRefusedKeyByKey) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --stop-after 10").exit_code, 75);
  const std::string before = small.read("runs/small/config.yaml");
  const std::string changed =
      "small.yaml --resume --set seed=7 --set global_batch_size=48 --set n_transit=8 --set train_n_stream=5 "
      "--set env_split_seed=9 --set lr=1e-3";
  const Finished refused = small.adtrain(changed);
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_THAT(
      refused.output,
      testing::AllOf(
          HasSubstr("seed: 42 in the run, 7 now"),
          HasSubstr("global_batch_size: of 24 sequences in the run, 48 sequences now"),
          HasSubstr("n_transit: 16 in the run, 8 now"), HasSubstr("train_n_stream: 10 in the run, 5 now"),
          HasSubstr("env_split_seed: null in the run, 9 now"),
          HasSubstr("--allow-changes env_split_seed,train_n_stream,n_transit,global_batch_size,seed")));
  EXPECT_EQ(small.read("runs/small/config.yaml"), before);
  EXPECT_FALSE(std::filesystem::exists(small.run() / "config.1.yaml"));

  const Finished allowed = small.adtrain(
      changed +
      " --allow-changes seed,global_batch_size,n_transit --allow-changes train_n_stream,env_split_seed");
  EXPECT_EQ(allowed.exit_code, 0) << allowed.output;
  EXPECT_THAT(allowed.output, testing::AllOf(HasSubstr("seed 42 → 7"), HasSubstr("lr 0.003 → 0.001")));
  EXPECT_EQ(small.read("runs/small/config.1.yaml"), before);
  EXPECT_EQ(small.adtrain("small.yaml --resume --allow-changes sede").exit_code, 2);
}

TEST(Resume, WhatMayChangeIsListedAndTheFormerConfigurationsAreKept) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --stop-after 10").exit_code, 75);
  const Finished longer =
      small.adtrain("small.yaml --resume --set lr=1e-3 --set train_timesteps=30 --set ckpt_interval=7");
  EXPECT_EQ(longer.exit_code, 0) << longer.output;
  EXPECT_THAT(longer.output,
              testing::AllOf(HasSubstr("lr 0.003 → 0.001"), HasSubstr("train_timesteps 20 → 30"),
                             HasSubstr("ckpt_interval 10 → 7"), HasSubstr("config.1.yaml")));
  EXPECT_EQ(small.adtrain("small.yaml --resume --set train_timesteps=31").exit_code, 0);
  EXPECT_THAT(small.read("runs/small/config.1.yaml"), HasSubstr("lr: 0.003\n"));
  EXPECT_THAT(small.read("runs/small/config.2.yaml"), HasSubstr("lr: 0.001\n"));
}

/// Without a fixed global batch the number of ranks is part of what a step means.
TEST(Resume, TheGlobalBatchThatComesOfTheRanksIsComparedToo) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const std::string config = "small.yaml --set global_batch_size=null --set train_batch_size=12";
  ASSERT_EQ(small.adtrain(config + " --stop-after 10").exit_code, 75);
  const Finished grown = small.mpirun(2, config + " --resume");
  EXPECT_EQ(grown.exit_code, 2) << grown.output;
  EXPECT_THAT(grown.output, HasSubstr("global_batch_size: of 12 sequences in the run, 24 sequences now"));
  EXPECT_EQ(small.mpirun(2, config + " --resume --set train_batch_size=6").exit_code, 0);
}

TEST(Resume, TheSavedConfigurationStartsAnEqualRun) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --set lr=1e-3").exit_code, 0);
  const Finished equal = small.adtrain("runs/small/config.yaml --set run_name=equal");
  ASSERT_EQ(equal.exit_code, 0) << equal.output;
  EXPECT_EQ(losses(small, "small"), losses(small, "equal"));
}

}  // namespace
}  // namespace adtrain
