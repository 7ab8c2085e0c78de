#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "environments/Space.h"

namespace adtrain {

/// Observations of any space as the numbers that a network is shown: a whole number as one-hot, several of
/// them as one-hots one behind the other, real numbers as they are. A value.
class ObservationFeatures {
 public:
  explicit ObservationFeatures(Space space);

  /// Numbers of one observation.
  int64_t size() const { return size_; }
  /// Rows of the space's own type → (rows, size()). The rows' values are those of the space.
  void write(std::span<const std::byte> rows, std::span<float> features) const;

 private:
  Space space_;
  int64_t size_;
};

/// Brings features to mean 0 and deviation 1 by what was seen so far, as Stable-Baselines3's VecNormalize
/// does (Welford's method for batches), and clips them to ±10. For one thread.
class RunningNormalisation {
 public:
  explicit RunningNormalisation(int64_t features)
      : mean_(static_cast<size_t>(features)), variance_(mean_.size(), 1.0) {}

  /// Takes rows of features into account.
  void observe(std::span<const float> features);
  /// Normalises rows of features in place.
  void apply(std::span<float> features) const;

  const std::vector<double>& mean() const { return mean_; }
  const std::vector<double>& variance() const { return variance_; }

 private:
  double count_ = 1e-4;  ///< a little of the starting values, so that nothing divides by 0
  std::vector<double> mean_, variance_;
};

}  // namespace adtrain
