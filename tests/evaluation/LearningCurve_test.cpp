#include "evaluation/LearningCurve.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

TEST(LearningCurve, FiguresComputedByHand) {
  const TaskFamily family = TaskFamily::of(EnvironmentOptions{});
  // Two tasks, two repeats, three episodes. Means of the repeats: task 40: 2, 4, 7; task 0: 1, 0, 3.
  const InContextReturns measured{{40, 0},
                                  at::tensor({1.0F, 3.0F, 8.0F, 3.0F, 5.0F, 6.0F,  //
                                              0.0F, 0.0F, 3.0F, 2.0F, 0.0F, 3.0F})
                                      .view({2, 2, 3})};
  const LearningCurve curve = LearningCurve::of(measured, family);
  EXPECT_THAT(curve.mean, ElementsAre(1.5, 2.0, 5.0));
  EXPECT_THAT(curve.std, ElementsAre(DoubleNear(0.5, 1e-12), DoubleNear(2.0, 1e-12), DoubleNear(2.0, 1e-12)));
  EXPECT_NEAR(curve.last10_mean, (1.5 + 2 + 5) / 3, 1e-12);
  EXPECT_NEAR(*curve.oracle, (20 + 13) / 2.0, 1e-12) << "task 40 starts on its goal, task 0 is 8 steps away";
  EXPECT_NEAR(*curve.random_floor, (family.random_return(40) + family.random_return(0)) / 2, 1e-12);
}

TEST(LearningCurve, TheLastTenEpisodesAreTheLastTen) {
  const TaskFamily family = TaskFamily::of(EnvironmentOptions{});
  const InContextReturns measured{{5}, at::arange(25, at::kFloat).view({1, 1, 25})};
  const LearningCurve curve = LearningCurve::of(measured, family);
  EXPECT_DOUBLE_EQ(curve.last10_mean, 19.5);
  EXPECT_THAT(curve.std, testing::Each(0.0)) << "one task deviates from nobody";
}

}  // namespace
}  // namespace adtrain
