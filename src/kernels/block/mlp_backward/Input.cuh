#pragma once

#include "kernels/block/mlp_backward/Memory.cuh"

/// The third stage: dx1.
namespace adtrain::kernels::mlp_backward_pass {

/// From dh and du2 of a tile to its `rows` rows of `dx1`. A warp has 32 rows and 16 columns.
template <int Width>
__device__ void input_stage(Tile<Width> linear1, Tile<kTileRows> dh, Tile<Width> du2, Bf16* dx1, int rows) {
  constexpr int kWarpTiles = 2, kColumnGroups = Width / kWarpTile;
  const LanePlace lane = lane_place();
  const int row = kWarpTiles * kWarpTile * (warp_number() / kColumnGroups);
  const int column = kWarpTile * (warp_number() % kColumnGroups);
  Sums sums[kWarpTiles][2];
#pragma unroll
  for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const Tile<Width> residual = from_row(du2, row + kWarpTile * warp_tile);
      const float2 upper = unpacked(residual.pair(lane.row, column + 8 * n + lane.column));
      const float2 lower = unpacked(from_row(residual, 8).pair(lane.row, column + 8 * n + lane.column));
      sums[warp_tile][n] = {{upper.x, upper.y, lower.x, lower.y}};
    }
  }
#pragma unroll
  for (int unit = 0; unit < 4 * Width; unit += kWarpTile) {
    const RightFragments weights = right_of(from_row(linear1, unit), 0, column);
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
      const LeftFragment units = left_of_transposed(from_row(dh, unit), 0, row + kWarpTile * warp_tile);
      multiply_add(sums[warp_tile][0], sums[warp_tile][1], units, weights);
    }
  }
  Bf16* first = dx1 + (row + lane.row) * Width + column + lane.column;
#pragma unroll
  for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int below = kWarpTile * warp_tile + 8 * half;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const Sums& sum = sums[warp_tile][n];
        store_if(row + lane.row + below < rows, first + below * Width + 8 * n,
                 packed(sum.value[2 * half], sum.value[2 * half + 1]));
      }
    }
  }
}

}  // namespace adtrain::kernels::mlp_backward_pass
