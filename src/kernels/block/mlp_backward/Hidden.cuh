#pragma once

#include "kernels/block/mlp_backward/Memory.cuh"
#include "kernels/block/mlp_backward/Sums.cuh"
#include "kernels/primitives/ConstantWords.cuh"
#include "kernels/primitives/WarpgroupProducts.cuh"

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

/// The values and gradients of 16 of a warp's hidden units in 32 rows, as left operands of the weights'
/// gradients.
struct HiddenFragments {
  LeftFragment a[kHeldRows / 16], dh[kHeldRows / 16];
};

/// From h and da of 16 of the warp's hidden units to a and dh. `keep` (32 rows): the dropout words that have
/// these units; `first_byte`: of the first eight units.
template <bool kDropout>
__device__ __forceinline__ void activate(HiddenFragments& result, const Sums (&h)[kHeldRows / 8],
                                         const Sums (&da)[kHeldRows / 8], const uint32_t* keep,
                                         int first_byte, float scale) {
  const LanePlace lane = lane_place();
#pragma unroll
  for (int n = 0; n < kHeldRows / 8; ++n) {
    uint2 words = {};
    if (kDropout) {  // moves the bits of the lane's two hidden units to the highest bits of two bytes
      words = *reinterpret_cast<const uint2*>(keep + 8 * n + lane.column);
      words = {words.x << (7 - lane.row), words.y << (7 - lane.row)};
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Activation first = gelu(h[n].value[2 * half], scale);
      const Activation second = gelu(h[n].value[2 * half + 1], scale);
      uint32_t& a = result.a[n / 2].part[2 * (n % 2) + half];
      uint32_t& dh = result.dh[n / 2].part[2 * (n % 2) + half];
      a = packed(first.value, second.value);
      dh = packed(da[n].value[2 * half] * first.slope, da[n].value[2 * half + 1] * second.slope);
      if (kDropout) {
        const uint32_t mask = pair_mask(words.x, words.y, first_byte + half);
        a &= mask;
        dh &= mask;
      }
    }
  }
}

/// The hidden stage of a thread. Products are those of warpgroups, with 64 hidden units as rows and 32 rows
/// of the batch as columns: with twice as many, h and da would not fit the registers beside the sums.
template <int Width, bool kDropout>
class HiddenStage {
 public:
  __device__ HiddenStage(Memory<Width>& memory, float scale) : memory_(memory), scale_(scale) {}

  /// From x1 and df of a tile to dh, transposed, and the sums. `keep`: the tile's dropout words. A warp
  /// tile's products for the sums are still under way when the next one's begin, but not those of the last
  /// one of a turn of the loop: there the compiler waits.
  __device__ __forceinline__ void run(Tile<Width> x1, Tile<Width> df, const uint32_t (*keep)[kKeepStride],
                                      Tile<kTileRows> dh, WeightSums<Width>& sums) {
#pragma unroll 1
    for (int row = 0; row < kTileRows; row += kHeldRows) {
      const Tile<Width> x1_rows = from_row(x1, row), df_rows = from_row(df, row);
#pragma unroll
      for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
        Sums h[kHeldRows / 8], da[kHeldRows / 8];
        start_units(h, da, warp_tile, x1_rows, df_rows);
        finish(sums);
        take_sums(h);
        take_sums(da);
        const int unit = first_unit(warp_tile);
        activate<kDropout>(hidden_, h, da, keep[unit / kUnits] + row, unit % kUnits / 8, scale_);
        const uint32_t ones = lane_place().row % 2 == warp_tile ? kOne << 16 | kOne : 0;
#pragma unroll
        for (int step = 0; step < kHeldRows / 16; ++step) {
          set_left(from_row(dh, unit), 0, row + 16 * step, hidden_.dh[step]);
          multiply_add(sums.linear1_bias, hidden_.dh[step], ones, ones);
        }
        start_gradients(sums, warp_tile, x1_rows, df_rows);
      }
    }
    finish(sums);
  }

 private:
  /// Waits for all products.
  __device__ __forceinline__ void finish(WeightSums<Width>& sums) {
    products_arrived<0>();
    take_sums(sums);
    hold(hidden_.a);
    hold(hidden_.dh);
  }
  /// h and da of the warpgroup's 64 units.
  __device__ __forceinline__ void start_units(Sums (&h)[kHeldRows / 8], Sums (&da)[kHeldRows / 8],
                                              int warp_tile, Tile<Width> x1, Tile<Width> df) const {
    const int lane_unit = first_unit(warp_tile) + lane_place().row;
    const float first = __bfloat162float(memory_.linear1_bias[lane_unit]),
                second = __bfloat162float(memory_.linear1_bias[lane_unit + 8]);
#pragma unroll
    for (int n = 0; n < kHeldRows / 8; ++n) {
      h[n] = {{first, first, second, second}};
      da[n] = no_sums();
    }
    take_sums(h);
    take_sums(da);
    // Else the compiler makes all descriptors of weights before the loop over rows, 64 bits each, and keeps
    // them in memory, for want of registers: the kernel took a third longer.
    const int of_group = static_cast<int>(known_from_here(group_unit(warp_tile)));
    const Tile<Width> linear1 = from_row(Tile<Width>{memory_.linear1}, of_group),
                      linear2 = from_row(Tile<Width>{memory_.linear2}, of_group);
    begin_products();
#pragma unroll
    for (int column = 0; column < Width; column += 16) {
      start_product_with_rows<Bf16>(h, linear1, x1, column);
      start_product_with_rows<Bf16>(da, linear2, df, column);
    }
    close_products();
  }
  /// The products of the weights' gradients.
  __device__ __forceinline__ void start_gradients(WeightSums<Width>& sums, int warp_tile, Tile<Width> x1,
                                                  Tile<Width> df) const {
    take_sums(sums);
    begin_products();
#pragma unroll
    for (int step = 0; step < kHeldRows / 16; ++step) {
      start_product_over_rows<Bf16>(sums.linear1[warp_tile], hidden_.dh[step], x1, 16 * step);
      start_product_over_rows<Bf16>(sums.linear2[warp_tile], hidden_.a[step], df, 16 * step);
    }
    close_products();
  }

  Memory<Width>& memory_;
  const float scale_;
  HiddenFragments hidden_;
};

}  // namespace adtrain::kernels::mlp_backward_pass
