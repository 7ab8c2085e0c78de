#include "evaluation/ActionChooser.h"

#include <array>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

/// Draws from the logits `row` (1, 4) as often as the probabilities `expected` (1, 4) say.
void expect_frequencies(ActionChooser& chooser, const at::Tensor& row, const at::Tensor& expected) {
  constexpr int kDraws = 40000;
  std::array<int, 4> counts{};
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(chooser.choose(row)[0])];
  for (int64_t action = 0; action < 4; ++action) {
    const double p = expected[0][action].item<double>();
    const double deviation = std::sqrt(p * (1 - p) / kDraws);
    EXPECT_NEAR(counts[static_cast<size_t>(action)] / double{kDraws}, p, 4.5 * deviation);
  }
}

TEST(ActionChooser, SamplesEachActionAsOftenAsItsSoftmaxSays) {
  const std::array<float, 4> logits = {0.5F, -1.0F, 100.0F - 99.0F, -3.0F};
  const at::Tensor row = at::tensor(at::ArrayRef<float>(logits)).unsqueeze(0);
  const at::Tensor expected = row.softmax(1);
  ActionChooser chooser(Sampling::kSample, 1, std::vector<Trial>{{3, 0}});
  expect_frequencies(chooser, row, expected);
}

TEST(ActionChooser, ATemperatureDividesTheLogits) {
  const at::Tensor row = at::tensor({0.5F, -1.0F, 1.0F, -3.0F}).unsqueeze(0);
  for (const double temperature : {0.4, 2.5}) {
    const at::Tensor expected = (row / temperature).softmax(1);
    ActionChooser chooser(Sampling::kSample, 1, std::vector<Trial>{{3, 0}}, temperature);
    expect_frequencies(chooser, row, expected);
  }
}

TEST(ActionChooser, LogitsFarFromZeroNeitherOverflowNorHideTheBestAction) {
  ActionChooser chooser(Sampling::kSample, 1, std::vector<Trial>{{0, 0}, {1, 0}});
  const auto actions =
      chooser.choose(at::tensor({1e30F, -1e30F, 0.0F, -4000.0F, -4100.0F, -3000.0F}).view({2, 3}));
  EXPECT_THAT(actions, testing::ElementsAre(0, 2));
}

TEST(ActionChooser, GreedyTakesTheMostProbableActionAndTheFirstOfEquals) {
  ActionChooser chooser(Sampling::kGreedy, 1, std::vector<Trial>{{0, 0}, {1, 0}});
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(chooser.choose(at::tensor({0.1F, 0.2F, 0.15F, 0.3F, 0.0F, 0.3F}).view({2, 3})),
                testing::ElementsAre(1, 0));
  }
}

TEST(ActionChooser, ATrialsDrawsDependOnSeedTaskAndRepeatAlone) {
  const auto draws = [](uint64_t seed, const std::vector<Trial>& trials, size_t which) {
    ActionChooser chooser(Sampling::kSample, seed, trials);
    std::vector<int32_t> actions;
    const at::Tensor logits = at::zeros({std::ssize(trials), 5});
    for (int i = 0; i < 50; ++i) actions.push_back(chooser.choose(logits)[which]);
    return actions;
  };
  const auto alone = draws(9, {{7, 2}}, 0);
  EXPECT_EQ(draws(9, {{1, 0}, {7, 2}, {8, 0}}, 1), alone);
  EXPECT_NE(draws(10, {{7, 2}}, 0), alone);
  EXPECT_NE(draws(9, {{8, 2}}, 0), alone);
  EXPECT_NE(draws(9, {{7, 3}}, 0), alone);
  EXPECT_NE(draws(9, {{2, 7}}, 0), alone);
}

TEST(ActionChooser, LogitsThatAreNotFiniteAreAnErrorThatNamesTheTask) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ActionChooser chooser(Sampling::kGreedy, 1, std::vector<Trial>{{4, 0}, {38, 1}});
    try {
      chooser.choose(at::tensor({0.0F, 1.0F, 2.0F, bad}).view({2, 2}));
      FAIL() << "expected an error";
    } catch (const NonFiniteError& error) {
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr("task 38"), testing::HasSubstr("not finite")));
    }
  }
}

}  // namespace
}  // namespace adtrain
