#include "kernels/quantised/CodeMaps.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include <ATen/ATen.h>

namespace adtrain::kernels {

std::array<float, 16> code_values(QuantisedCode code) {
  switch (code) {
    case QuantisedCode::nf4:
      return {-1.0F,
              -0.6961928009986877F,
              -0.5250730514526367F,
              -0.39491748809814453F,
              -0.28444138169288635F,
              -0.18477343022823334F,
              -0.09105003625154495F,
              0.0F,
              0.07958029955625534F,
              0.16093020141124725F,
              0.24611230194568634F,
              0.33791524171829224F,
              0.44070982933044434F,
              0.5626170039176941F,
              0.7229568362236023F,
              1.0F};
    case QuantisedCode::fp4: {
      // By the bits of exponent and mantissa; the sign is the highest bit. There is a second zero, no −0.
      constexpr std::array<float, 8> kMagnitudes = {0, 0.0625F, 8, 12, 4, 6, 2, 3};
      std::array<float, 16> values = {};
      for (size_t i = 0; i < kMagnitudes.size(); ++i) {
        values[i] = kMagnitudes[i] / 12.0F;
        values[i + kMagnitudes.size()] = i == 0 ? 0.0F : -values[i];
      }
      return values;
    }
    default:
      throw std::logic_error("Only codes of 4 bits have a map.");
  }
}

at::Tensor dynamic_map() {
  constexpr int kExponents = 7;
  std::vector<float> values = {0.0F, 1.0F};
  for (int i = 0; i < kExponents; ++i) {
    const auto scale = static_cast<float>(std::pow(10.0, i - (kExponents - 1)));
    const at::Tensor bounds = at::linspace(0.1, 1.0, (int64_t{1} << i) + 1, at::kFloat);
    const float* const bound = bounds.const_data_ptr<float>();
    for (int64_t j = 0; j + 1 < bounds.numel(); ++j) {
      const float value = scale * ((bound[j] + bound[j + 1]) / 2.0F);
      values.push_back(value);
      values.push_back(-value);
    }
  }
  std::ranges::sort(values);
  return at::tensor(values, at::kFloat);
}

}  // namespace adtrain::kernels
