#include "collection/own/ObservationFeatures.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "base/Random.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

template <class Number, size_t kCount>
std::vector<float> features(const Space& space, const std::array<Number, kCount>& rows) {
  const ObservationFeatures encoder(space);
  std::vector<float> written(kCount / static_cast<size_t>(space.size()) * static_cast<size_t>(encoder.size()),
                             -1);
  encoder.write(std::as_bytes(std::span(rows)), written);
  return written;
}

TEST(ObservationFeatures, AreOneHotForWholeNumbersAndTheNumbersThemselvesForABox) {
  Space discrete = Space::discrete(3);
  discrete.start = {5};
  EXPECT_EQ(features(discrete, std::array<int64_t, 2>{7, 5}), (std::vector<float>{0, 0, 1, 1, 0, 0}));
  Space pairs = Space::multi_discrete({2}, {2, 3});
  pairs.type = ElementType::kUint8;
  EXPECT_EQ(features(pairs, std::array<uint8_t, 4>{1, 0, 0, 2}),
            (std::vector<float>{0, 1, 1, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(features(Space::box({2}, {-9}, {9}, ElementType::kFloat64), std::array<double, 2>{0.5, -3}),
            (std::vector<float>{0.5, -3}));
}

/// Compared with mean and variance of everything at once.
TEST(RunningNormalisation, KnowsMeanAndVarianceOfAllThatItSaw) {
  RandomStream random(fresh_seed());
  constexpr size_t kFeatures = 3;
  RunningNormalisation normalisation(kFeatures);
  std::vector<std::vector<double>> seen(kFeatures);
  for (const size_t rows : {1, 40, 7, 300}) {
    std::vector<float> batch;
    for (size_t i = 0; i < rows * kFeatures; ++i) {
      batch.push_back(static_cast<float>(100.0 * static_cast<double>(i % kFeatures) + 2 * random.normal()));
      seen[i % kFeatures].push_back(batch.back());
    }
    normalisation.observe(batch);
  }
  for (size_t i = 0; i < kFeatures; ++i) {
    double mean = 0, variance = 0;
    for (const double value : seen[i]) mean += value / static_cast<double>(seen[i].size());
    for (const double value : seen[i])
      variance += (value - mean) * (value - mean) / static_cast<double>(seen[i].size());
    EXPECT_NEAR(normalisation.mean()[i], mean, 1e-3);
    EXPECT_NEAR(normalisation.variance()[i], variance, 0.02) << "10⁻⁴ of a first guess remain";
    std::vector<float> row(kFeatures, 1e6F);
    row[i] = static_cast<float>(mean + 1.5 * std::sqrt(variance));
    normalisation.apply(row);
    EXPECT_NEAR(row[i], 1.5, 0.02);
    EXPECT_EQ(row[(i + 1) % kFeatures], 10) << "clipped";
  }
}

}  // namespace
}  // namespace adtrain
