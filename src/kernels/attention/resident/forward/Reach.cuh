#pragma once

#include <cstdint>

#include "kernels/BlockShape.h"
#include "kernels/attention/resident/forward/WarpTiles.cuh"
#include "kernels/primitives/Tile.cuh"

namespace adtrain::kernels::forward_pass {

/// Which keys a warp tile reads where there is no padding: whole tiles of 16, then possibly one tile of which
/// each row reads a different part.
struct Reach {
  int whole;         ///< tiles that all rows read
  bool partly;       ///< whether tile `whole` is read in part
  uint32_t keys[2];  ///< which of its keys the lane's two rows read

  __device__ int tiles() const { return whole + partly; }

  __device__ Reach(const BlockShape& shape, const WarpTile& warp_tile, unsigned lane) {
    const int tokens_left = shape.tokens & (kWarpTile - 1);
    whole = shape.causal ? warp_tile.number : shape.tokens >> 4;
    partly = shape.causal || tokens_left != 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int before = lane_place(lane).row + 8 * half;
      keys[half] = (1u << (shape.causal ? before + !warp_tile.second : tokens_left)) - 1;
    }
  }
};

}  // namespace adtrain::kernels::forward_pass
