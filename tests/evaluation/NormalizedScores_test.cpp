#include "evaluation/NormalizedScores.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/Error.h"
#include "support/FreshSeed.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// scipy.stats.trim_mean(numbers, 0.25), which rliable's aggregate_iqm calls, by its definition: what is left
/// of the sorted numbers without the first and the last int(0.25 · n) of them.
double trimmed_mean(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const auto cut = static_cast<size_t>(0.25 * static_cast<double>(numbers.size()));
  double sum = 0;
  for (size_t i = cut; i < numbers.size() - cut; ++i) sum += numbers[i];
  return sum / static_cast<double>(numbers.size() - 2 * cut);
}

TEST(NormalizedScores, TheInterquartileMeanIsRliables) {
  EXPECT_DOUBLE_EQ(interquartile_mean({4}), 4);
  EXPECT_DOUBLE_EQ(interquartile_mean({100, 1, 2, -50}), 1.5);
  std::mt19937 random(fresh_seed());
  std::normal_distribution<double> normal;
  for (size_t count = 1; count < 40; ++count) {
    std::vector<double> numbers(count);
    for (double& number : numbers) number = normal(random);
    EXPECT_NEAR(interquartile_mean(numbers), trimmed_mean(numbers), 1e-12) << count;
  }
}

TEST(NormalizedScores, ReturnsAreBetweenRandomAndExpertOfEachTask) {
  const InContextReturns measured{{7, 8, 9}, at::randn({3, 2, 12}) * 10};
  const std::vector<TaskScore> scores = {{-5, 20, "a"}, {1, std::nullopt, "a"}, {-3, 2, "b"}};
  const auto normalized = NormalizedScores::of(measured, scores);
  ASSERT_TRUE(normalized);
  EXPECT_EQ(normalized->without_scores, std::vector<int64_t>{8});
  EXPECT_EQ(normalized->all.tasks, 2);
  ASSERT_EQ(normalized->groups.size(), 2U);
  const auto score = [&](int64_t task, int64_t repeat, int64_t episode) {
    const TaskScore& bounds = scores[static_cast<size_t>(task)];
    return (measured.returns[task][repeat][episode].item<double>() - *bounds.random) /
           (*bounds.expert - *bounds.random);
  };
  for (int64_t episode = 0; episode < 12; ++episode) {
    const std::vector<double> found = {score(0, 0, episode), score(0, 1, episode), score(2, 0, episode),
                                       score(2, 1, episode)};
    const auto at = static_cast<size_t>(episode);
    EXPECT_NEAR(normalized->all.mean[at], std::accumulate(found.begin(), found.end(), 0.0) / 4, 1e-9);
    EXPECT_NEAR(normalized->all.iqm[at], trimmed_mean(found), 1e-9);
    EXPECT_NEAR(normalized->groups.at("b").mean[at], (found[2] + found[3]) / 2, 1e-9);
  }
  double last = 0;
  for (int64_t episode = 2; episode < 12; ++episode) last += score(2, 0, episode) + score(2, 1, episode);
  EXPECT_NEAR(normalized->groups.at("b").last10_mean, last / 20, 1e-9);
  EXPECT_FALSE(NormalizedScores::of(measured, {{1, std::nullopt, ""}, {2, 2, ""}, {std::nullopt, 3, ""}}));
}

TEST(NormalizedScores, AnExpertWhoIsNoBetterThanRandomPlacesNothing) {
  const InContextReturns measured{{7, 8, 9}, at::full({3, 1, 4}, -50.0)};
  const auto normalized = NormalizedScores::of(measured, {{2, -3, ""}, {0, 10, ""}, {2, 2, ""}});
  ASSERT_TRUE(normalized);
  EXPECT_EQ(normalized->without_scores, (std::vector<int64_t>{7, 9}));
  EXPECT_EQ(normalized->all.last10_mean, -5) << "worse than random is below 0";
}

TaskScores read(const std::string& yaml) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "scores.yaml";
  std::ofstream(file) << yaml;
  return TaskScores::read(file);
}

TEST(TaskScores, AreReadAsVintixHasThem) {
  const TaskScores scores = read(
      "Ant-v4:\n  path: Ant-v4\n  group: mujoco\n  type: default\n  reward_scale: 0.1\n  random_score: "
      "-60.5\n"
      "  expert_score: 6300\nnew-task: {expert_score: 1}\n");
  EXPECT_EQ(scores.of("Ant-v4").random, -60.5);
  EXPECT_EQ(scores.of("Ant-v4").expert, 6300);
  EXPECT_EQ(scores.of("Ant-v4").group, "mujoco");
  EXPECT_FALSE(scores.of("new-task").random);
  EXPECT_FALSE(scores.of("unknown").expert);
}

/// What reading this refuses.
std::string message(const std::string& yaml) {
  try {
    read(yaml);
    return "nothing was wrong";
  } catch (const DataError& error) {
    return error.what();
  }
}

TEST(TaskScores, AKeyThatIsNearlyAKnownOneIsRefused) {
  EXPECT_THAT(message("a: {random_score: 1, expert_score: 2}\nb: {random_score: 1, expert_scor: 2}\n"),
              AllOf(HasSubstr("scores.yaml:2: 'b': expert_scor is no key of scores"),
                    HasSubstr("did you mean expert_score, which the task does not have?")));
  EXPECT_THAT(message("a: {randomscore: 1, expert_score: 2}\n"), HasSubstr("did you mean random_score"));
  EXPECT_THAT(message("a: {random_score: 1, expert_score: 2, groups: x}\n"), HasSubstr("did you mean group"));
  // Other keys are passed over, also those of nearly the same name where the task has the known one.
  EXPECT_EQ(
      message("a: {path: a, type: default, reward_scale: 2, episode_sparsity: 1, episode_range: [0, 1]}\n"
              "b: {random_score: 1, random_score_std: 3, expert_score: 2, expert_scores: [2, 2]}\n"
              "c: {expert_score: 2}\nd: {random_score: 2}\n"),
      "nothing was wrong");
}

TEST(TaskScores, TheNearestNameIsThatOfATaskThatIsNotThere) {
  const TaskScores scores = read("Ant-v4: {expert_score: 1}\nHopper-v4: {expert_score: 1}\n");
  EXPECT_EQ(scores.nearest("Hoper-v4"), "Hopper-v4");
  EXPECT_EQ(scores.nearest("Ant-v4"), "") << "it is there";
  EXPECT_EQ(scores.nearest("Reacher"), "");
}

TEST(TaskScores, RefuseWhatIsNone) {
  EXPECT_THAT(message("a: {random_score: 1}\nb: {expert_score: much}\n"),
              AllOf(HasSubstr("scores.yaml:2:"), HasSubstr("expert_score is no number")));
  EXPECT_THAT(message("a: {random_score: 2, expert_score: 2}\n"),
              HasSubstr("expert_score is 2, and so is random_score"));
  EXPECT_THAT(message("a: {random_score: 1}\nb: {random_score: 5, expert_score: -2.5}\n"),
              AllOf(HasSubstr("scores.yaml:2: 'b'"), HasSubstr("expert_score is -2.5, and random_score is 5"),
                    HasSubstr("expected an expert_score above random_score")));
  EXPECT_THAT(message("- a\n- b\n"), HasSubstr("expected a map of tasks"));
  EXPECT_THAT(message("a: 5\n"), HasSubstr("'a' is no map"));
  EXPECT_THAT(message("a: {random_score: [1\n"), HasSubstr("scores.yaml:"));
  EXPECT_THROW(TaskScores::read("/there/is/none.yaml"), DataError);
}

}  // namespace
}  // namespace adtrain
