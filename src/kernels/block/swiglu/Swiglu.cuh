#pragma once

#include <cstdint>

#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// What the forward and the backward pass of the SwiGLU sublayer share.
namespace adtrain::kernels {

/// How many of `most` rows there are from `first` on.
__device__ inline int rows_from(int64_t first, int64_t rows, int most) {
  return static_cast<int>(min(rows - first, int64_t{most}));
}

/// Rounds the lane's eight neighbouring columns of four accumulators in feature order, in one of its two rows
/// (half = 0 or 1). Stores them where `condition` holds, without a branch.
__device__ inline void store_eight_if(bool condition, Bf16* to, const Sums* sums, int half) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = packed(sums[i].value[2 * half], sums[i].value[2 * half + 1]);
  store_if(condition, to, pairs);
}

}  // namespace adtrain::kernels
