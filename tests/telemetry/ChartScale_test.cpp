#include "telemetry/ChartScale.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Kind = ChartScale::Kind;

ChartScale scale_of(Kind kind, const std::vector<double>& values, double margin = 0) {
  ChartScale scale(kind);
  for (const double value : values) scale.include(value);
  scale.settle(margin);
  return scale;
}

std::vector<std::string> labels(const ChartScale& scale, int most) {
  std::vector<std::string> result;
  for (const auto& tick : scale.ticks(most)) result.push_back(tick.label);
  return result;
}

TEST(ChartScale, TicksAreNiceForAnyRange) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-12, 12), mantissa(-10, 10);
  for (int trial = 0; trial < 2000; ++trial) {
    const double low = mantissa(random) * std::pow(10, exponent(random));
    const double high = low + std::pow(10, exponent(random));
    if (high - low < 1e-4 * std::abs(low)) continue;
    const int most = 3 + trial % 8;
    const std::vector<double> ticks = nice_ticks(low, high, most);
    ASSERT_GE(ticks.size(), 1U);
    ASSERT_LE(ticks.size(), static_cast<size_t>(most) + 1);
    const double slack = 1e-6 * (high - low);
    EXPECT_GE(ticks.front(), low - slack);
    EXPECT_LE(ticks.back(), high + slack);
    if (ticks.size() < 2) continue;
    const double step = ticks[1] - ticks[0];
    const double lead = step / std::pow(10, std::floor(std::log10(step * (1 + 1e-6))));
    EXPECT_TRUE(std::abs(lead - 1) < 1e-3 || std::abs(lead - 2) < 1e-3 || std::abs(lead - 5) < 1e-3) << step;
    EXPECT_NEAR(std::remainder(ticks[0], step), 0, 1e-6 * step);
  }
}

TEST(ChartScale, LabelsHaveTheDecimalsThatTellThemApart) {
  EXPECT_THAT(labels(scale_of(Kind::kLinear, {0, 1}), 5),
              ElementsAre("0.0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_THAT(labels(scale_of(Kind::kLinear, {0, 50000}), 5),
              ElementsAre("0", "10 000", "20 000", "30 000", "40 000", "50 000"));
  EXPECT_THAT(labels(scale_of(Kind::kLinear, {-0.1, 0.1}), 4),
              ElementsAre("-0.10", "-0.05", "0.00", "0.05", "0.10"));
  EXPECT_THAT(labels(scale_of(Kind::kLinear, {0, 2e9}), 2), ElementsAre("0", "1e+09", "2e+09"));
}

TEST(ChartScale, SharesRunFromZeroToOne) {
  const ChartScale linear = scale_of(Kind::kLinear, {10, 20, 12});
  EXPECT_THAT((std::vector<double>{linear.share(10), linear.share(15), linear.share(20)}),
              Pointwise(DoubleNear(1e-12), {0.0, 0.5, 1.0}));
  const ChartScale logarithmic = scale_of(Kind::kLogarithmic, {0.01, 100});
  EXPECT_THAT((std::vector<double>{logarithmic.share(0.01), logarithmic.share(1), logarithmic.share(100)}),
              Pointwise(DoubleNear(1e-12), {0.0, 0.5, 1.0}));
}

TEST(ChartScale, DecadesCarryTheirTicks) {
  EXPECT_THAT(labels(scale_of(Kind::kLogarithmic, {0.001, 1}), 7), ElementsAre("0.001", "0.01", "0.1", "1"));
  EXPECT_THAT(labels(scale_of(Kind::kLogarithmic, {1, 60}), 7), ElementsAre("1", "2", "5", "10", "20", "50"));
  EXPECT_THAT(labels(scale_of(Kind::kLogarithmic, {0.5, 1.5}), 5),
              ElementsAre("0.6", "0.8", "1.0", "1.2", "1.4"));
  EXPECT_LE(scale_of(Kind::kLogarithmic, {1e-30, 1e30}).ticks(7).size(), 8U);
}

TEST(ChartScale, MarginsWidenBothEnds) {
  const ChartScale linear = scale_of(Kind::kLinear, {0, 10}, 0.05);
  EXPECT_DOUBLE_EQ(linear.low(), -0.5);
  EXPECT_DOUBLE_EQ(linear.high(), 10.5);
  const ChartScale logarithmic = scale_of(Kind::kLogarithmic, {1, 100}, 0.5);
  EXPECT_DOUBLE_EQ(logarithmic.low(), 0.1);
  EXPECT_DOUBLE_EQ(logarithmic.high(), 1000);
}

TEST(ChartScale, AnyContentGivesAFiniteAxisThatHoldsIt) {
  const std::vector<std::vector<double>> contents = {{},
                                                     {0},
                                                     {3},
                                                     {-3},
                                                     {1e-30},
                                                     {1e90},
                                                     {1e16, 1e16 + 2},
                                                     {NAN, kInfinity},
                                                     {NAN, 5, -kInfinity},
                                                     {1e300, -1e300},
                                                     {-1e100, 1e100}};
  for (const Kind kind : {Kind::kLinear, Kind::kLogarithmic}) {
    for (const auto& content : contents) {
      const ChartScale scale = scale_of(kind, content, 0.05);
      ASSERT_LT(scale.low(), scale.high());
      for (const double value : content) {
        if (!scale.holds(value)) continue;
        EXPECT_GE(scale.share(value), 0);
        EXPECT_LE(scale.share(value), 1);
      }
      const auto ticks = scale.ticks(7);
      EXPECT_GE(ticks.size(), 1U);
      EXPECT_LE(ticks.size(), 20U);
      for (const auto& tick : ticks) EXPECT_TRUE(std::isfinite(scale.share(tick.value)));
    }
  }
}

TEST(ChartScale, LabelsMoveApartButNotOut) {
  EXPECT_THAT(spread_labels({10, 50, 90}, 15, 0, 100), ElementsAre(10, 50, 90));
  EXPECT_THAT(spread_labels({50, 51, 10}, 15, 0, 100), ElementsAre(50, 65, 10));
  EXPECT_THAT(spread_labels({98, 99, 97}, 10, 0, 100), ElementsAre(90, 100, 80));
  EXPECT_THAT(spread_labels({-5}, 10, 0, 100), ElementsAre(0));
  EXPECT_TRUE(spread_labels({}, 10, 0, 100).empty());
}

}  // namespace
}  // namespace adtrain
