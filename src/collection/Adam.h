#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace adtrain {

/// Adam (Kingma and Ba 2015) with Stable-Baselines3's settings: β 0.9 and 0.999, ε 1e-5, no weight decay.
/// For one array of parameters.
class Adam {
 public:
  Adam(size_t parameters, double learning_rate)
      : learning_rate_(learning_rate), mean_(parameters), square_mean_(parameters) {}

  /// Takes a step along gradient × `scale`.
  void step(std::span<float> parameters, std::span<const float> gradient, float scale);

 private:
  double learning_rate_;
  double mean_power_ = 1;  ///< β1 to the number of steps
  double square_power_ = 1;
  std::vector<float> mean_, square_mean_;
};

/// The sum of squares of an array whose size is a multiple of 8.
float sum_of_squares(std::span<const float> values);

}  // namespace adtrain
