#pragma once

#include <cstdint>

#include "base/Cuda.h"
#include "model/kernels/fused/Tile.cuh"

/// What both passes of the SwiGLU half share.
namespace adtrain::kernels {

inline int multiprocessors() {
  int device = 0, count = 0;
  gpu::check(cudaGetDevice(&device), "cudaGetDevice");
  gpu::check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  return count;
}

/// How many of `most` rows there are from `first` on.
__device__ inline int rows_from(int64_t first, int64_t rows, int most) {
  return static_cast<int>(min(rows - first, int64_t{most}));
}

/// Rounds eight neighbouring columns, the lane's in one of its two rows (half = 0 or 1) of four accumulators
/// in feature order, and stores them where `condition` holds, without a branch.
__device__ inline void store_eight_if(bool condition, Bf16* to, const Sums* sums, int half) {
  const auto pair = [&](int i) { return packed(sums[i].value[2 * half], sums[i].value[2 * half + 1]); };
  asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0; @p st.global.v4.b32 [%1], {%2,%3,%4,%5}; }" ::"r"(
                   static_cast<int>(condition)),
               "l"(to), "r"(pair(0)), "r"(pair(1)), "r"(pair(2)), "r"(pair(3))
               : "memory");
}

}  // namespace adtrain::kernels
