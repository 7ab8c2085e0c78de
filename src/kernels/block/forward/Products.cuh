#pragma once

#include "kernels/attention/resident/forward/Features.cuh"
#include "kernels/attention/resident/forward/Memory.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/WarpgroupProducts.cuh"

/// Products of warp tiles in registers with weights in shared memory. At width 64 a warpgroup's four warps
/// multiply together, each with 16 rows of its own: weights are then read once for four warp tiles. All four
/// come to each product, also those without a warp tile, whose results nobody reads.
namespace adtrain::kernels::forward_pass {

template <int Width>
constexpr bool kByWarpgroups = Width == 64;
/// Warps that come to products together.
template <int Width>
constexpr int kWarpsTogether = kByWarpgroups<Width> ? kWarpsOfGroup : 1;

/// Starts sums += left · weightᵀ with 16 · Steps columns, from `column` on, of a weight's 8 · Count rows.
/// `ByWarpgroups`: kByWarpgroups of the block's width. Products by single warps have arrived at once.
template <bool ByWarpgroups, int Count, int Steps, int Columns>
__device__ __forceinline__ void start_projection(Sums (&sums)[Count], const LeftFragment (&left)[Steps],
                                                 Tile<Columns> weight, int column, unsigned lane) {
  if constexpr (ByWarpgroups) {
    begin_products();
#pragma unroll
    for (int step = 0; step < Steps; ++step) {
      start_product_with_rows<Bf16>(sums, left[step], weight, column + 16 * step);
    }
    close_products();
  } else {
#pragma unroll
    for (int step = 0; step < Steps; ++step) {
      if (step % 2 == 0) __syncwarp();  // else the compiler loads more ahead than registers can hold
#pragma unroll
      for (int i = 0; i < Count / 2; ++i) {
        multiply_add(sums[2 * i], sums[2 * i + 1], left[step],
                     right_of_transposed(weight, 16 * i, column + 16 * step, lane));
      }
    }
  }
}
/// The same with all columns, for sums that no product is adding to yet.
template <bool ByWarpgroups, int Count, int Steps>
__device__ __forceinline__ void start_projection(Sums (&sums)[Count], const LeftFragment (&left)[Steps],
                                                 Tile<16 * Steps> weight, unsigned lane) {
  if constexpr (ByWarpgroups) take_sums(sums);
  start_projection<ByWarpgroups>(sums, left, weight, 0, lane);
}

/// Starts to project x by a third of in_proj: to queries, keys or values.
template <class Block, int Width>
__device__ __forceinline__ void start_third(Sums (&sums)[Width / 8], int third, const Features<Width>& x,
                                            const Memory<Block, Width>& memory, unsigned lane) {
#pragma unroll
  for (int eight = 0; eight < Width / 8; ++eight) {
    sums[eight] = sums_from(memory.in_proj_bias + third * Width + 8 * eight + lane_place(lane).column);
  }
  start_projection<kByWarpgroups<Width>>(sums, x.step, from_row(memory.in_proj, third * Width), lane);
}

/// Waits for all such products except the last `Left` ones, of which the last that is waited for made `sums`.
template <bool ByWarpgroups, int Left = 0, int Count>
__device__ __forceinline__ void await_projection(Sums (&sums)[Count]) {
  if constexpr (ByWarpgroups) {
    products_arrived<Left>();
    take_sums(sums);
  }
}

/// Keeps a left operand until its products have been waited for.
template <bool ByWarpgroups, int Steps>
__device__ __forceinline__ void keep_until_here(LeftFragment (&left)[Steps]) {
  if constexpr (ByWarpgroups) hold(left);
}

}  // namespace adtrain::kernels::forward_pass
