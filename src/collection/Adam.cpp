#include "collection/Adam.h"

#include <cmath>

#include "collection/Lanes.h"

namespace adtrain {

void Adam::step(std::span<float> parameters, std::span<const float> gradient, float scale) {
  constexpr float kBeta1 = 0.9F, kBeta2 = 0.999F, kEpsilon = 1e-5F;
  mean_power_ *= 0.9;
  square_power_ *= 0.999;
  const auto rate = static_cast<float>(learning_rate_ / (1 - mean_power_));
  const auto square_scale = static_cast<float>(1 / std::sqrt(1 - square_power_));
  float* const weight = parameters.data();
  float* const mean = mean_.data();
  float* const square_mean = square_mean_.data();
  const float* const slope = gradient.data();
  const size_t count = parameters.size();
  for (size_t i = 0; i < count; ++i) {
    const float g = slope[i] * scale;
    mean[i] = kBeta1 * mean[i] + (1 - kBeta1) * g;
    square_mean[i] = kBeta2 * square_mean[i] + (1 - kBeta2) * g * g;
    weight[i] -= rate * mean[i] / (std::sqrt(square_mean[i]) * square_scale + kEpsilon);
  }
}

float sum_of_squares(std::span<const float> values) {
  Lanes squares[4] = {};
  size_t i = 0;
  for (; i + 4 * kLanes <= values.size(); i += 4 * kLanes) {
    for (size_t part = 0; part < 4; ++part) {
      const Lanes lanes = load(&values[i + part * kLanes]);
      squares[part] += lanes * lanes;
    }
  }
  for (; i < values.size(); i += kLanes) squares[0] += load(&values[i]) * load(&values[i]);
  return sum((squares[0] + squares[1]) + (squares[2] + squares[3]));
}

}  // namespace adtrain
