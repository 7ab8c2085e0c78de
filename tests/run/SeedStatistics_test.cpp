#include "run/figures/SeedStatistics.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(SeedStatistics, TheStandardErrorDividesByOneLessThanTheSeeds) {
  // The deviations of 2, 4, 4, 4, 5, 5, 7, 9 from 5 have squares that sum to 32.
  const std::vector<double> values = {2, 4, 4, 4, 5, 5, 7, 9};
  const MeanOverSeeds result = mean_over_seeds(values, Interval::kStandardError);
  EXPECT_DOUBLE_EQ(result.mean, 5);
  EXPECT_DOUBLE_EQ(result.high - result.mean, std::sqrt(32.0 / 7 / 8));
  EXPECT_DOUBLE_EQ(result.mean - result.low, std::sqrt(32.0 / 7 / 8));
}

TEST(SeedStatistics, TheBootstrapOfTwoSeedsSpansThem) {
  // A quarter of the samples holds the first alone, another quarter the second alone.
  const MeanOverSeeds result = mean_over_seeds(std::vector<double>{1, 3}, Interval::kBootstrap);
  EXPECT_EQ(result.mean, 2);
  EXPECT_EQ(result.low, 1);
  EXPECT_EQ(result.high, 3);
}

/// The sum of ten draws from four zeros and six ones is binomial: P(sum ≤ 2) = 1.2%, P(sum ≤ 3) = 5.5% and
/// P(sum ≤ 8) = 95.4%, P(sum ≤ 9) = 99.4%, so the quantiles of the mean are 0.3 and 0.9.
TEST(SeedStatistics, TheBootstrapHasTheQuantilesOfTheBinomialDistribution) {
  const std::vector<double> values = {0, 1, 1, 0, 1, 0, 1, 1, 0, 1};
  const MeanOverSeeds result = mean_over_seeds(values, Interval::kBootstrap);
  EXPECT_DOUBLE_EQ(result.mean, 0.6);
  EXPECT_DOUBLE_EQ(result.low, 0.3);
  EXPECT_DOUBLE_EQ(result.high, 0.9);
}

TEST(SeedStatistics, TheBootstrapOfManySeedsIsTheNormalInterval) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  std::vector<double> values(400);
  for (double& value : values) value = normal(random);
  const MeanOverSeeds error = mean_over_seeds(values, Interval::kStandardError);
  const MeanOverSeeds result = mean_over_seeds(values, Interval::kBootstrap);
  const double half = 1.96 * (error.high - error.mean);
  EXPECT_NEAR(result.low, result.mean - half, 0.05 * half);
  EXPECT_NEAR(result.high, result.mean + half, 0.05 * half);
  EXPECT_EQ(result.low, mean_over_seeds(values, Interval::kBootstrap).low) << "it is always drawn alike";
}

TEST(SeedStatistics, OneSeedAndNoIntervalHaveNoWidthAndNanStays) {
  for (const Interval interval : {Interval::kStandardError, Interval::kBootstrap, Interval::kNone}) {
    const MeanOverSeeds one = mean_over_seeds(std::vector<double>{4}, interval);
    EXPECT_EQ(one.low, 4);
    EXPECT_EQ(one.high, 4);
    EXPECT_TRUE(std::isnan(mean_over_seeds(std::vector<double>{1, std::nan("")}, interval).mean));
    EXPECT_TRUE(std::isnan(mean_over_seeds({}, interval).low));
  }
  EXPECT_EQ(mean_over_seeds(std::vector<double>{1, 3}, Interval::kNone).low, 2);
}

}  // namespace
}  // namespace adtrain
