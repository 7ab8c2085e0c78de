#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "Weights.h"

namespace adtrain {
namespace {

void expect_success(const Finished& finished) {
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
}

/// At the same global batch the number of ranks, the transport and accumulation change nothing but rounding.
TEST(Ranks, TrainToTheSameParametersHoweverTheGlobalBatchIsDealtOut) {
  const SmallRun small;
  expect_success(small.collect());
  expect_success(small.adtrain("small.yaml --set run_name=one"));
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (const std::string accumulation : {"1", "2"}) {
      const std::string suffix = std::to_string(ranks) + "x" + accumulation;
      const std::string settings =
          "small.yaml --set gradient_accumulation_steps=" + accumulation + " --set run_name=";
      expect_success(small.mpirun(ranks, settings + "mpi" + suffix));
      EXPECT_LT(largest_difference(small, "one", "mpi" + suffix), 1e-5)
          << "mpirun, ranks × accumulation = " << suffix;
      if ((ranks + std::stoi(accumulation)) % 2 == 0) continue;  // torchrun takes seconds to start
      expect_success(small.torchrun(ranks, settings + "gloo" + suffix));
      EXPECT_LT(largest_difference(small, "one", "gloo" + suffix), 1e-5)
          << "torchrun, ranks × accumulation = " << suffix;
    }
  }
  expect_success(small.adtrain("small.yaml --set gradient_accumulation_steps=2 --set run_name=accumulated"));
  EXPECT_LT(largest_difference(small, "one", "accumulated"), 1e-5);
  // The comparison can fail: another seed ends elsewhere.
  expect_success(small.adtrain("small.yaml --set seed=7 --set run_name=other"));
  EXPECT_GT(largest_difference(small, "one", "other"), 1e-2);
}

TEST(Ranks, StopAfterTheStepThatRankZeroWasGiven) {
  const SmallRun small;
  expect_success(small.collect());
  for (const std::string step : {"$((5 + 4 * OMPI_COMM_WORLD_RANK))", "$((9 - 4 * OMPI_COMM_WORLD_RANK))"}) {
    const Finished stopped = small.mpirun_shell(
        2, "exec " ADTRAIN_BINARY_DIR "/adtrain small.yaml --overwrite --stop-after " + step);
    EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
    const std::string of_root = step[3] == '5' ? "5" : "9";
    EXPECT_THAT(stopped.output, testing::HasSubstr("stopped after step " + of_root + " of 20"));
    EXPECT_TRUE(std::filesystem::exists(small.run() / "checkpoints" / ("step-" + of_root)));
  }
}

TEST(Ranks, MeasureTheSameHeldOutLossOnAnyNumberOfRanks) {
  const SmallRun small;
  expect_success(small.collect());
  expect_success(small.adtrain("small.yaml --set run_name=one"));
  expect_success(small.mpirun(3, "small.yaml --set run_name=three"));
  const auto one = small.metrics("one", "test_loss"), three = small.metrics("three", "test_loss");
  ASSERT_EQ(one.size(), 2U);
  ASSERT_EQ(three.size(), 2U);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(one[i]["test_loss"].get<double>(), three[i]["test_loss"].get<double>(), 1e-5);
    EXPECT_NEAR(one[i]["test_accuracy"].get<double>(), three[i]["test_accuracy"].get<double>(), 1e-3);
  }
}

TEST(Ranks, EvaluateToTheSameReturnsBitForBit) {
  const SmallRun small;
  expect_success(small.collect());
  expect_success(small.adtrain("small.yaml"));
  const std::string settings = " --set eval_batch=4 --set eval_repeats=2";
  expect_success(small.adtrain("evaluate runs/small" + settings));
  const std::string alone = small.read("runs/small/evaluation/latest/reward_episode.npy");
  expect_success(small.mpirun(3, "evaluate runs/small" + settings));
  EXPECT_EQ(small.read("runs/small/evaluation/latest/reward_episode.npy"), alone);
}

/// All environments are spread evenly over the ranks, as nothing lacks memory; and the number that was found
/// gives the same returns when it is given.
TEST(Ranks, FindHowManyEnvironmentsToEvaluateAtOnce) {
  const SmallRun small;
  expect_success(small.collect());
  expect_success(small.adtrain("small.yaml"));
  const Finished found = small.mpirun(2, "evaluate runs/small --set eval_batch=auto_batch_size");
  expect_success(found);
  std::smatch number;
  ASSERT_TRUE(std::regex_search(found.output, number, std::regex("Found optimal batch size: ([0-9]+)")))
      << found.output;
  EXPECT_EQ(number[1], "3") << "of five held-out tasks on two ranks";
  const std::string returns = small.read("runs/small/evaluation/latest/reward_episode.npy");
  expect_success(small.mpirun(2, "evaluate runs/small --set eval_batch=" + number[1].str()));
  EXPECT_EQ(small.read("runs/small/evaluation/latest/reward_episode.npy"), returns);
}

}  // namespace
}  // namespace adtrain
