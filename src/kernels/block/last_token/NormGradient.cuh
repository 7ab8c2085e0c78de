#pragma once

#include "kernels/primitives/Tile.cuh"

namespace adtrain::kernels::last_token {

/// The backward pass of a LayerNorm of single rows, by one warp.
template <int Width>
class NormGradient {
 public:
  /// For a row's gradient `dy`, its normalised values and 1 / its deviation: calls take(column, gradient of
  /// the norm's input), and adds to the sums for the norm's parameters.
  template <class Take>
  __device__ void of_row(const Bf16* dy, const Bf16* normed_row, float inverse, const Bf16* weight,
                         const Take& take) {
    float g[kOwn], normed[kOwn], mean = 0, mean_of_normed = 0;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const float of_output = __bfloat162float(dy[column(k)]);
      normed[k] = __bfloat162float(normed_row[column(k)]);
      g[k] = of_output * __bfloat162float(weight[column(k)]);
      of_weight_[k] += of_output * normed[k];
      of_bias_[k] += of_output;
      mean += g[k];
      mean_of_normed = fmaf(g[k], normed[k], mean_of_normed);
    }
    mean = warp_sum(mean) * (1.0f / Width);
    mean_of_normed = warp_sum(mean_of_normed) * (1.0f / Width);
#pragma unroll
    for (int k = 0; k < kOwn; ++k) take(column(k), inverse * (g[k] - mean - normed[k] * mean_of_normed));
  }

  /// Writes the sums for weight and bias.
  __device__ void put(float (&sums)[2][Width]) const {
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      sums[0][column(k)] = of_weight_[k];
      sums[1][column(k)] = of_bias_[k];
    }
  }

 private:
  static constexpr int kOwn = Width / kWarp;

  __device__ static int column(int k) {
    return threadIdx.x % kWarp + kWarp * k;
  }

  float of_weight_[kOwn] = {}, of_bias_[kOwn] = {};
};

}  // namespace adtrain::kernels::last_token
