#pragma once

#include <cstddef>

namespace adtrain {

/// Units of each of the two hidden layers.
constexpr int kUnits = 64;

/// The parameters of a network from a cell to `kOutputs` numbers, or their gradients: it can be used as an
/// array of floats and as a range. Row k of a matrix holds the weights *from* input k, except for the output
/// layer: row o holds those *to* output o. Kernels know this layout too.
template <int kOutputs>
struct alignas(32) MlpWeights {
  float input[2][kUnits] = {};  ///< from x, from y
  float input_bias[kUnits] = {};
  float hidden[kUnits][kUnits] = {};
  float hidden_bias[kUnits] = {};
  float output[kOutputs][kUnits] = {};
  float output_bias[8] = {};  ///< the first kOutputs; the rest is 0 and pads the last lanes

  static constexpr size_t size() { return sizeof(MlpWeights) / sizeof(float); }
  float* begin() { return &input[0][0]; }
  float* end() { return begin() + size(); }
  const float* begin() const { return &input[0][0]; }
  const float* end() const { return begin() + size(); }
};

}  // namespace adtrain
