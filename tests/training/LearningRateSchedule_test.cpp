#include "training/LearningRateSchedule.h"

#include <cmath>

#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(LearningRateSchedule, RisesLinearlyThenFallsByHalfACosine) {
  const LearningRateSchedule schedule(0.4, 10, 110);
  EXPECT_DOUBLE_EQ(schedule.rate_at(0), 0.0);
  EXPECT_DOUBLE_EQ(schedule.rate_at(5), 0.2);
  EXPECT_DOUBLE_EQ(schedule.rate_at(10), 0.4);
  EXPECT_NEAR(schedule.rate_at(60), 0.2, 1e-12);
  EXPECT_NEAR(schedule.rate_at(35), 0.4 * 0.5 * (1 + std::sqrt(0.5)), 1e-12);
}

TEST(LearningRateSchedule, EndsAtZeroAndNeverClimbsBack) {
  const LearningRateSchedule schedule(1.0, 3, 50);
  for (int64_t step = 4; step < 50; ++step) EXPECT_LT(schedule.rate_at(step), schedule.rate_at(step - 1));
  EXPECT_GT(schedule.rate_at(49), 0.0);
  for (int64_t step = 50; step < 120; ++step) EXPECT_EQ(schedule.rate_at(step), 0.0);
}

TEST(LearningRateSchedule, WithoutWarmUpItStartsAtThePeak) {
  EXPECT_DOUBLE_EQ(LearningRateSchedule(0.01, 0, 100).rate_at(0), 0.01);
}

}  // namespace
}  // namespace adtrain
