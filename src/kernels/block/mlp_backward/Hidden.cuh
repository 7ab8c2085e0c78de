#pragma once

#include "kernels/block/mlp_backward/Memory.cuh"
#include "kernels/block/mlp_backward/Sums.cuh"

/// The second stage: the hidden layer's values, their gradients, and the sums for the weights.
namespace adtrain::kernels::mlp_backward_pass {

struct Activation {
  float value, slope;
};

/// gelu and its derivative at h, times `scale`: gelu(h) = h Φ(h) with Φ(h) = (1 + tanh u) / 2,
/// u = √(2/π) (h + 0.044715 h³), and Φ' = Φ (1 − tanh u) u'.
__device__ inline Activation gelu(float h, float scale) {
  constexpr float kLinear = 0.7978845608f, kCubic = kLinear * 0.044715f;
  const float square = h * h;
  const float tangent = tanh_of(h * fmaf(kCubic, square, kLinear));
  const float phi = fmaf(tangent, 0.5f * scale, 0.5f * scale);
  const float value = h * phi;
  const float u_slope = fmaf(3.0f * kCubic, square, kLinear);
  return {value, fmaf(value, fmaf(-u_slope, tangent, u_slope), phi)};
}

/// The values and gradients of a warp's hidden units in 16 rows, as left operands of the weights' gradients.
struct HiddenWarpTiles {
  LeftFragment a[kUnitWarpTiles], dh[kUnitWarpTiles];
};

/// From h and da of a warp's hidden units in 16 rows to a and dh. `keep`: the dropout words of the first row.
template <bool kDropout>
__device__ HiddenWarpTiles activate(const Sums (&h)[kUnitWarpTiles][2], const Sums (&da)[kUnitWarpTiles][2],
                                    const uint32_t* keep, float scale) {
  const LanePlace lane = lane_place();
  HiddenWarpTiles result;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    uint2 words = {};
    if (kDropout) {  // moves the bits of the lane's four hidden units to the highest bits of the four bytes
      words = *reinterpret_cast<const uint2*>(keep + 8 * n + lane.column);
      words = {words.x << (7 - lane.row), words.y << (7 - lane.row)};
    }
#pragma unroll
    for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Activation first = gelu(h[warp_tile][n].value[2 * half], scale);
        const Activation second = gelu(h[warp_tile][n].value[2 * half + 1], scale);
        uint32_t& a = result.a[warp_tile].part[2 * n + half];
        uint32_t& dh = result.dh[warp_tile].part[2 * n + half];
        a = packed(first.value, second.value);
        dh = packed(da[warp_tile][n].value[2 * half] * first.slope,
                    da[warp_tile][n].value[2 * half + 1] * second.slope);
        if (kDropout) {
          const uint32_t mask = pair_mask(words.x, words.y, 2 * warp_tile + half);
          a &= mask;
          dh &= mask;
        }
      }
    }
  }
  return result;
}

/// Adds the products of the tiles' first 16 rows to the sums for the weights.
template <int Width>
__device__ void add_weight_gradients(WeightSums<Width>& sums, const HiddenWarpTiles& hidden, Tile<Width> x1,
                                     Tile<Width> df) {
#pragma unroll
  for (int n = 0; n < Width / 8; n += 2) {
    const RightFragments x1_rows = right_of(x1, 0, 8 * n), df_rows = right_of(df, 0, 8 * n);
#pragma unroll
    for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
      multiply_add(sums.linear1[warp_tile][n], sums.linear1[warp_tile][n + 1], hidden.dh[warp_tile], x1_rows);
      multiply_add(sums.linear2[warp_tile][n], sums.linear2[warp_tile][n + 1], hidden.a[warp_tile], df_rows);
    }
  }
#pragma unroll
  for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
    const uint32_t ones = lane_place().row % 2 == warp_tile ? kOne << 16 | kOne : 0;
    multiply_add(sums.linear1_bias, hidden.dh[warp_tile], ones, ones);
  }
}

/// From x1 and df of a tile to dh, transposed, and the sums. `keep` (64 rows): the warp's dropout words.
template <int Width, bool kDropout>
__device__ void hidden_stage(const Memory<Width>& memory, Tile<Width> linear1, Tile<4 * Width> linear2,
                             Tile<Width> x1, Tile<Width> df, const uint32_t* keep, float scale,
                             Tile<kTileRows> dh, WeightSums<Width>& sums) {
  const LanePlace lane = lane_place();
  const int unit = kUnits * warp_number();
  constexpr int kPairs = kHeldRows / kWarpTile;
#pragma unroll 1
  for (int row = 0; row < kTileRows; row += kHeldRows) {
    Sums h[kPairs][kUnitWarpTiles][2], gradient[kPairs][kUnitWarpTiles][2];
#pragma unroll
    for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
      const Bf16* bias = memory.linear1_bias + unit + kWarpTile * warp_tile + lane.row;
      const float first = __bfloat162float(bias[0]), second = __bfloat162float(bias[8]);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        h[pair][warp_tile][0] = h[pair][warp_tile][1] = {{first, first, second, second}};
        gradient[pair][warp_tile][0] = gradient[pair][warp_tile][1] = no_sums();
      }
    }
#pragma unroll
    for (int column = 0; column < Width; column += kWarpTile) {
      LeftFragment weights[kUnitWarpTiles];
#pragma unroll
      for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
        weights[warp_tile] = left_of(from_row(linear1, unit + kWarpTile * warp_tile), 0, column);
      }
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const RightFragments rows = right_of_transposed(from_row(x1, row + kWarpTile * pair), 0, column);
#pragma unroll
        for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
          multiply_add(h[pair][warp_tile][0], h[pair][warp_tile][1], weights[warp_tile], rows);
        }
      }
    }
#pragma unroll
    for (int column = 0; column < Width; column += kWarpTile) {
      LeftFragment weights[kUnitWarpTiles];
#pragma unroll
      for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
        weights[warp_tile] = left_of_transposed(from_row(linear2, column), 0, unit + kWarpTile * warp_tile);
      }
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const RightFragments rows = right_of_transposed(from_row(df, row + kWarpTile * pair), 0, column);
#pragma unroll
        for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
          multiply_add(gradient[pair][warp_tile][0], gradient[pair][warp_tile][1], weights[warp_tile], rows);
        }
      }
    }
    // All of dh is stored after the last product, so that no store delays the loads for a product.
    LeftFragment to_store[kPairs][kUnitWarpTiles];
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const int first = row + kWarpTile * pair;
      const HiddenWarpTiles hidden = activate<kDropout>(h[pair], gradient[pair], keep + first, scale);
      add_weight_gradients(sums, hidden, from_row(x1, first), from_row(df, first));
#pragma unroll
      for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile)
        to_store[pair][warp_tile] = hidden.dh[warp_tile];
    }
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
      for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
        set_left(from_row(dh, unit + kWarpTile * warp_tile), 0, row + kWarpTile * pair,
                 to_store[pair][warp_tile]);
      }
    }
  }
}

}  // namespace adtrain::kernels::mlp_backward_pass
