#include "run/figures/SeedStatistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "base/Random.h"

namespace adtrain {
namespace {

constexpr size_t kSamples = 10'000;
constexpr uint64_t kBootstrapSeed = 1;
constexpr double kOutside = 0.025;  ///< of the means on each side of the interval

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double standard_error(std::span<const double> values, double mean) {
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / (count - 1) / count);
}

/// Of sorted values, linear between neighbours, as NumPy's.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

/// Every point of a curve draws the same seeds, so the band is as smooth as the curves are.
std::vector<double> sampled_means(std::span<const double> values) {
  RandomStream random(kBootstrapSeed);
  std::vector<double> means(kSamples);
  for (double& mean : means) {
    for (size_t i = 0; i < values.size(); ++i)
      mean += values[random.below(static_cast<uint32_t>(values.size()))];
    mean /= static_cast<double>(values.size());
  }
  std::ranges::sort(means);
  return means;
}

}  // namespace

MeanOverSeeds mean_over_seeds(std::span<const double> values, Interval interval) {
  const double mean = values.empty() ? std::numeric_limits<double>::quiet_NaN() : mean_of(values);
  if (!std::isfinite(mean) || values.size() == 1 || interval == Interval::kNone) return {mean, mean, mean};
  if (interval == Interval::kStandardError) {
    const double error = standard_error(values, mean);
    return {mean, mean - error, mean + error};
  }
  const std::vector<double> means = sampled_means(values);
  return {mean, quantile(means, kOutside), quantile(means, 1 - kOutside)};
}

}  // namespace adtrain
