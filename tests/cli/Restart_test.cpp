#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kProgram = "exec " ADTRAIN_BINARY_DIR "/adtrain ";
/// Rank 1 of the first attempt ends before it has done anything.
constexpr const char* kDiesEarly =
    "if [ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 1 ]; then sleep 1; exit 9; fi\n";

TEST(Restart, ARefusedStartIsRefusedAgain) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --stop-after 10").exit_code, 75);
  const Finished refused = small.torchrun_shell(2, "--max-restarts 1", std::string(kProgram) + "small.yaml");
  EXPECT_EQ(refused.exit_code, 1) << refused.output;
  EXPECT_THAT(refused.output, AllOf(HasSubstr("holds a run with checkpoints already"),
                                    HasSubstr("has begun no run here"), Not(HasSubstr("resuming"))));
  EXPECT_FALSE(fs::exists(small.run() / "checkpoints" / "step-20"));
}

TEST(Restart, OverwritesWhatTheFirstAttemptCouldNot) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --set seed=7 --set run_name=expected").exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --stop-after 15").exit_code, 75);
  const Finished restarted = small.torchrun_shell(
      2, "--max-restarts 1", kDiesEarly + std::string(kProgram) + "small.yaml --overwrite --set seed=7");
  EXPECT_EQ(restarted.exit_code, 0) << restarted.output;
  EXPECT_THAT(restarted.output, Not(HasSubstr("resuming")));
  EXPECT_THAT(small.read("runs/small/config.yaml"), HasSubstr("seed: 7\n"));
  EXPECT_EQ(small.metrics("small", "loss").size(), 20U);
  EXPECT_FALSE(fs::exists(small.run() / "checkpoints" / "step-15"));
}

/// The ranks are not torchrun's own children here.
TEST(Restart, ContinuesWhatAnEarlierAttemptHadClaimed) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --stop-after 5").exit_code, 75);
  const Finished restarted = small.torchrun_shell(
      2, "--max-restarts 1",
      "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then export ADTRAIN_FAULT=kill@1:25; fi\n" ADTRAIN_BINARY_DIR
      "/adtrain small.yaml --overwrite --set seed=7 --set train_timesteps=40 & pid=$!\n"
      "trap 'kill $pid' TERM; wait $pid");
  EXPECT_EQ(restarted.exit_code, 0) << restarted.output;
  EXPECT_THAT(restarted.output, AllOf(HasSubstr("restart 1 by torchrun continues"),
                                      HasSubstr("resuming after step 20"), HasSubstr("done: 40 steps")));
  EXPECT_THAT(small.read("runs/small/config.yaml"), HasSubstr("seed: 7\n"));
}

}  // namespace
}  // namespace adtrain
