#pragma once

#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// Operations in registers on sums and on pairs of 16-bit values, and a head's columns of a tile as operands.
namespace adtrain::kernels::backward_pass {

/// The rounding error of a 16-bit product, left · right − product, in 16 bit.
__device__ inline uint32_t rest_of(uint32_t product, uint32_t left, uint32_t right) {
  return multiplied_plus(left, right, negative(product));
}
__device__ inline LeftFragment rest_of(const LeftFragment& product, const LeftFragment& left,
                                       const LeftFragment& right) {
  LeftFragment rest;
#pragma unroll
  for (int i = 0; i < 4; ++i) rest.part[i] = rest_of(product.part[i], left.part[i], right.part[i]);
  return rest;
}

template <int Count>
__device__ void multiply_by(Sums (&sums)[Count], float scale) {
#pragma unroll
  for (Sums& eight : sums) {
#pragma unroll
    for (float& value : eight.value) value *= scale;
  }
}

/// 16 rows of a tile × the columns of a head, as left operand: {row, row + 8} for each 8 columns.
template <int HeadSize>
struct HeadRows {
  uint32_t part[HeadSize / 8][2];

  __device__ LeftFragment step(int i) const {
    return {{part[2 * i][0], part[2 * i][1], part[2 * i + 1][0], part[2 * i + 1][1]}};
  }
};

template <int HeadSize, int Width>
__device__ HeadRows<HeadSize> head_rows(Tile<Width> warp_tile, int column) {
  HeadRows<HeadSize> rows;
  if constexpr (HeadSize == 8) {
    load_two_matrices(rows.part[0], shared_address(warp_tile.at(threadIdx.x % 16, column)));
  } else {
#pragma unroll
    for (int i = 0; i < HeadSize / 16; ++i) {
      const LeftFragment left = left_of(warp_tile, 0, column + 16 * i);
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        rows.part[2 * i + eight][0] = left.part[2 * eight];
        rows.part[2 * i + eight][1] = left.part[2 * eight + 1];
      }
    }
  }
  return rows;
}

/// sums (16 × 16) += left · warp tileᵀ, summed over the columns of a head.
template <int HeadSize, int Width>
__device__ void multiply_with_rows(Sums (&sums)[2], const HeadRows<HeadSize>& left, Tile<Width> warp_tile,
                                   int column) {
  if constexpr (HeadSize == 8) {
    uint32_t right[2];
    load_two_matrices(right, shared_address(warp_tile.at(threadIdx.x % 16, column)));
    multiply_add_8(sums[0], left.part[0], right[0]);
    multiply_add_8(sums[1], left.part[0], right[1]);
  } else {
#pragma unroll
    for (int i = 0; i < HeadSize / 16; ++i) {
      multiply_add(sums[0], sums[1], left.step(i), right_of_transposed(warp_tile, 0, column + 16 * i));
    }
  }
}

/// sums (16 × HeadSize) += left · warp tile, in the columns of a head.
template <int HeadSize, int Width>
__device__ void add_rows(Sums (&sums)[HeadSize / 8], const LeftFragment& left, Tile<Width> warp_tile,
                         int column) {
  if constexpr (HeadSize == 8) {
    uint32_t right[2];
    load_two_matrices_transposed(right, shared_address(warp_tile.at(threadIdx.x % 16, column)));
    multiply_add(sums[0], left, right[0], right[1]);
  } else {
#pragma unroll
    for (int i = 0; i < HeadSize / 16; ++i) {
      multiply_add(sums[2 * i], sums[2 * i + 1], left, right_of(warp_tile, 0, column + 16 * i));
    }
  }
}

}  // namespace adtrain::kernels::backward_pass
