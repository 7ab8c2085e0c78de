#pragma once

#include <cstdint>

#include "model/kernels/fused/BlockTensors.h"
#include "model/kernels/fused/block_forward/Strips.cuh"
#include "model/kernels/gpu/Tile.cuh"

namespace adtrain::kernels::forward_pass {

/// Which keys a strip reads where there is no padding: whole tiles of 16 first, perhaps one of which the rows
/// read different parts.
struct Reach {
  int whole;         ///< tiles that all rows read
  bool partly;       ///< whether tile `whole` is read in part
  uint32_t keys[2];  ///< which of its keys the lane's two rows read

  __device__ int tiles() const { return whole + partly; }

  __device__ Reach(const BlockShape& shape, const Strip& strip, unsigned lane) {
    const int tokens_left = shape.tokens & (kStrip - 1);
    whole = shape.causal ? strip.number : shape.tokens >> 4;
    partly = shape.causal || tokens_left != 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int before = lane_place(lane).row + 8 * half;
      keys[half] = (1u << (shape.causal ? before + !strip.second : tokens_left)) - 1;
    }
  }
};

}  // namespace adtrain::kernels::forward_pass
