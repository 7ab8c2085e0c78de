#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The exit code and the key words of the message that a user meets.
void expect_error(const Finished& finished, int exit_code, const testing::Matcher<std::string>& message) {
  EXPECT_EQ(finished.exit_code, exit_code) << finished.output;
  EXPECT_THAT(finished.output, message);
}

TEST(BadInput, AMissingConfigurationFile) {
  const SmallRun small;
  expect_error(small.adtrain("absent.yaml"), 2, HasSubstr("absent.yaml"));
}

TEST(BadInput, BrokenYamlNamesFileAndLine) {
  const SmallRun small;
  small.write("broken.yaml", "lr: 1e-3\nseed: [1, 2\nn_transit: 4\n");
  expect_error(small.adtrain("broken.yaml"), 2, HasSubstr("broken.yaml:"));
}

TEST(BadInput, AllFaultsOfAFileInOneGo) {
  const SmallRun small;
  small.write("faulty.yaml",
              "include: small.yaml\nn_transt: 20\ntf_n_head: 3\nlr: fast\nhorizon: 0\nsummary_interval: 0\n");
  expect_error(small.adtrain("validate faulty.yaml"), 2,
               AllOf(HasSubstr("faulty.yaml:2"), HasSubstr("n_transit"), HasSubstr("faulty.yaml:3"),
                     HasSubstr("faulty.yaml:4"), HasSubstr("faulty.yaml:5"), HasSubstr("faulty.yaml:6")));
}

TEST(BadInput, WhatAllRanksGotWrongIsSaidOnce) {
  const SmallRun small;
  small.write("faulty.yaml", "include: small.yaml\nn_transt: 20\n");
  for (const Finished& finished : {small.mpirun(2, "faulty.yaml"), small.torchrun(2, "faulty.yaml")}) {
    EXPECT_NE(finished.exit_code, 0);
    EXPECT_THAT(finished.output, HasSubstr("did you mean n_transit?"));
    // torchrun repeats what it was told in its table of failures; the ranks themselves speak once.
    const size_t first = finished.output.find("adtrain: faulty.yaml:2");
    ASSERT_NE(first, std::string::npos) << finished.output;
    EXPECT_EQ(finished.output.find("adtrain: faulty.yaml:2", first + 1), std::string::npos)
        << finished.output;
  }
}

TEST(BadInput, AMisspeltCommandOrOptionIsAnswered) {
  const SmallRun small;
  expect_error(small.adtrain("evalaute runs/small"), 2, HasSubstr("did you mean 'evaluate'"));
  expect_error(small.adtrain("small.yaml --resum"), 2, HasSubstr("--help"));
  expect_error(small.adtrain("small.yaml --set n_transit"), 2, HasSubstr("key=value"));
}

TEST(BadInput, TrainingWithoutHistoriesSaysHowToCollectThem) {
  const SmallRun small;
  expect_error(small.adtrain("small.yaml"), 4,
               AllOf(HasSubstr("adtrain collect"), HasSubstr("history_darkroom")));
}

TEST(BadInput, ATruncatedHistoryFile) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const auto path = small.folder() / "histories" / "history_darkroom_PPO_alg-seed1.hdf5";
  const std::string bytes = read_file(path);
  write_file(path, bytes.substr(0, bytes.size() / 2));
  expect_error(small.adtrain("small.yaml"), 4, HasSubstr("history_darkroom_PPO_alg-seed1.hdf5"));
}

TEST(BadInput, HistoriesOfAnotherSizeNameTheSetting) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  expect_error(small.adtrain("small.yaml --set train_source_timesteps=500"), 4,
               HasSubstr("train_source_timesteps"));
  expect_error(small.adtrain("small.yaml --set train_n_stream=11"), 4, HasSubstr("train_n_stream"));
  expect_error(small.adtrain("small.yaml --set episode_stride=10"), 4, HasSubstr("episode_stride"));
}

TEST(BadInput, AGlobalBatchThatDoesNotDivideOverTheRanks) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  expect_error(small.mpirun(2, "small.yaml --set global_batch_size=25"), 2,
               AllOf(HasSubstr("25"), HasSubstr("26")));
}

TEST(BadInput, RanksWithDifferentConfigurationsStop) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished finished = small.mpirun_shell(
      2, "exec " ADTRAIN_BINARY_DIR "/adtrain small.yaml --set lr=1e-$OMPI_COMM_WORLD_RANK");
  expect_error(finished, 3, HasSubstr("configuration"));
}

TEST(BadInput, ARankThatDoesNotStartIsNotWaitedForWithoutEnd) {
  const SmallRun small;
  const Finished finished =
      small.mpirun_shell(2,
                         "test $OMPI_COMM_WORLD_RANK = 0 || exec sleep 500\n"
                         "exec " ADTRAIN_BINARY_DIR "/adtrain test --set rendezvous_timeout_seconds=2");
  expect_error(finished, 3,
               AllOf(HasSubstr("rank 0 of 2"), HasSubstr("waited 2.0 s for all ranks to start")));
}

TEST(BadInput, CollectingByALauncherIsRefused) {
  const SmallRun small;
  expect_error(small.mpirun(2, "collect small.yaml"), 3,
               AllOf(HasSubstr("one process"), HasSubstr("OMPI_COMM_WORLD_SIZE=2")));
}

TEST(BadInput, ACheckpointOfAnotherModelIsRefused) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  expect_error(small.adtrain("small.yaml --resume --set tf_n_embd=32"), 5,
               AllOf(HasSubstr("embed_context"), HasSubstr("shape")));
  EXPECT_EQ(small.adtrain("evaluate runs/small").exit_code, 0) << "the refused start left the run as it was";
}

TEST(BadInput, AnOverwriteThatCannotStartKeepsTheEarlierRun) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  expect_error(small.adtrain("small.yaml --overwrite --set traj_dir=elsewhere"), 4, HasSubstr("elsewhere"));
  EXPECT_TRUE(std::filesystem::exists(small.run() / "checkpoints" / "step-20" / "manifest.json"));
}

TEST(BadInput, ALearningRateThatBlowsUpEndsWithTheNewestCheckpointNamed) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  expect_error(small.adtrain("small.yaml --set lr=1e30 --set max_grad_norm=0 --set num_warmup_steps=0"), 6,
               AllOf(HasSubstr("nan"), HasSubstr("checkpoint"), HasSubstr("lr")));
}

TEST(BadInput, NoSpaceForACheckpointIsALoudWarningAndTrainingGoesOn) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  // A limit on file sizes stands in for a full disk: weights do not fit, the configuration does.
  const Finished finished =
      run_shell("cd " + quoted(small.folder().string()) +
                " && trap '' XFSZ && ulimit -f 16 && " ADTRAIN_BINARY_DIR "/adtrain small.yaml");
  expect_error(finished, 0, AllOf(HasSubstr("NOT saved"), HasSubstr("step 20")));
}

TEST(BadInput, EvaluatingWhatIsNoRun) {
  const SmallRun small;
  expect_error(small.adtrain("evaluate runs/nothing"), 5, HasSubstr("runs/nothing"));
}

TEST(BadInput, ACudaDeviceThatIsNotThere) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished finished =
      run_shell("cd " + quoted(small.folder().string()) +
                " && CUDA_VISIBLE_DEVICES= " ADTRAIN_BINARY_DIR "/adtrain small.yaml --set device=cuda");
  expect_error(finished, 3, AllOf(HasSubstr("GPU"), HasSubstr("device")));
}

TEST(BadInput, CollectingOnACudaDeviceThatIsNotThere) {
  const SmallRun small;
  const Finished finished = run_shell("cd " + quoted(small.folder().string()) +
                                      " && CUDA_VISIBLE_DEVICES= " ADTRAIN_BINARY_DIR
                                      "/adtrain collect small.yaml --set device=cuda");
  expect_error(finished, 3, AllOf(HasSubstr("no GPU is visible"), HasSubstr("device: auto or cpu")));
}

}  // namespace
}  // namespace adtrain
