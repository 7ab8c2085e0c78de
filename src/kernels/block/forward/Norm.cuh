#pragma once

#include <cstdint>

#include "kernels/attention/resident/forward/DropoutWords.cuh"
#include "kernels/attention/resident/forward/Features.cuh"
#include "kernels/attention/resident/forward/WarpTiles.cuh"
#include "kernels/primitives/Tile.cuh"

/// What follows each sublayer: its output is added to the residual stream, and the sum is normalised.
namespace adtrain::kernels::forward_pass {

constexpr float kNormEpsilon = 1e-5f;

/// What a sublayer's output is added to: the residual stream, and the dropout words for the output. Loaded
/// well before it is used.
template <int Width>
struct Residual {
  Features<Width> x;
  RowWords<Width / 32> words;
};

/// branch = x + drop(branch) in fp32.
template <bool Dropout, int Width>
__device__ void add_residual(Sums (&branch)[Width / 8], const Residual<Width>& residual, float scale,
                             unsigned lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int block = 0; block < Width / 32; ++block) {
      // Bit i is for the lane's feature i of these 32.
      const uint32_t kept = residual.words.of[half][block] >> 4 * lane_place(lane).column;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& value = branch[4 * block + i / 2].value[2 * half + i % 2];
        const float2 pair = residual.x.pair(4 * block + i / 2, half);
        const float own = i % 2 == 0 ? pair.x : pair.y;
        if (Dropout) {
          value = fmaf((kept >> i & 1) != 0 ? value : 0.0f, scale, own);
        } else {
          value += own;
        }
      }
    }
  }
}

/// A norm's arrays.
struct Norm {
  const Bf16 *weight, *bias;  ///< in shared memory
  Bf16* normed;
  float* inverse;
};

/// Normalises the rows in fp32. Writes the normalised rows and 1 / deviation for the backward pass.
template <int Width>
__device__ Features<Width> layer_norm(Sums (&values)[Width / 8], const Norm& norm, const WarpTile& warp_tile,
                                      unsigned lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = 0.0f;
#pragma unroll
    for (const Sums& sums : values) sum += sums.value[2 * half] + sums.value[2 * half + 1];
    const float mean = quad_sum(sum) * (1.0f / Width);
    float squares = 0.0f;
#pragma unroll
    for (Sums& sums : values) {
      float* value = sums.value + 2 * half;
      value[0] -= mean;
      value[1] -= mean;
      squares = fmaf(value[0], value[0], fmaf(value[1], value[1], squares));
    }
    const float inverse = rsqrtf(fmaf(quad_sum(squares), 1.0f / Width, kNormEpsilon));
#pragma unroll
    for (Sums& sums : values) {
      sums.value[2 * half] *= inverse;
      sums.value[2 * half + 1] *= inverse;
    }
    if (warp_tile.comes_out(half) && lane % 4 == 0) norm.inverse[warp_tile.place() + 8 * half] = inverse;
  }
  Features<Width>::rounded(values).store(norm.normed, warp_tile, lane);

#pragma unroll
  for (int block = 0; block < Width / 32; ++block) {
    const uint4 weight = *reinterpret_cast<const uint4*>(norm.weight + feature_of_lane(lane, 4 * block));
    const uint4 bias = *reinterpret_cast<const uint4*>(norm.bias + feature_of_lane(lane, 4 * block));
    const uint32_t weights[4] = {weight.x, weight.y, weight.z, weight.w};
    const uint32_t biases[4] = {bias.x, bias.y, bias.z, bias.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float(&value)[4] = values[4 * block + i].value;
      const float2 by = unpacked(weights[i]), plus = unpacked(biases[i]);
      value[0] = fmaf(value[0], by.x, plus.x);
      value[1] = fmaf(value[1], by.y, plus.y);
      value[2] = fmaf(value[2], by.x, plus.x);
      value[3] = fmaf(value[3], by.y, plus.y);
    }
  }
  return Features<Width>::rounded(values);
}

}  // namespace adtrain::kernels::forward_pass
