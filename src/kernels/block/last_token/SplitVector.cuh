#pragma once

#include "kernels/primitives/Tile.cuh"

/// Products of matrices with single vectors on the tensor cores. A vector is the sum of two bf16 vectors, its
/// rounded values and what rounding took off, so that a product has 16 bits of it instead of 8. The two are
/// neighbouring columns of the right operand, of whose eight columns most are 0 anyway.
namespace adtrain::kernels::last_token {

/// Two neighbouring values, rounded, and what rounding took off.
struct SplitPair {
  uint32_t high, low;
};
__device__ inline SplitPair split(float first, float second) {
  const uint32_t high = packed(first, second);
  const float2 rounded = unpacked(high);
  return {high, packed(first - rounded.x, second - rounded.y)};
}

/// One value, likewise.
__device__ inline uint32_t split_of(float value) {
  const float rounded = __bfloat162float(__float2bfloat16(value));
  return packed(rounded, value - rounded);
}

/// A vector in shared memory.
template <int Size>
struct alignas(16) SplitVector {
  Bf16 high[Size], low[Size];

  __device__ void set(int i, float value) {
    high[i] = __float2bfloat16(value);
    low[i] = __float2bfloat16(value - __bfloat162float(high[i]));
  }
  __device__ float at(int i) const { return __bfloat162float(high[i]) + __bfloat162float(low[i]); }

  /// The lane's part of eight rows of the right operand with columns `high`, `low`, 0, ….
  __device__ uint32_t right(int first_row) const {
    const LanePlace lane = lane_place();
    const Bf16* column = lane.row == 0 ? high : low;
    return lane.row < 2 ? *reinterpret_cast<const uint32_t*>(column + first_row + lane.column) : 0;
  }
};

/// Rows `first` … `first` + 15 of the matrix times the right operand (Width, 8), of which right(row) is the
/// lane's part in rows `row` … `row` + 7.
template <int Width, class Right>
__device__ Sums times_rows(Tile<Width> matrix, int first, const Right& right) {
  Sums sums = no_sums();
#pragma unroll
  for (int k = 0; k < Width; k += 16) {
    multiply_add(sums, left_of(matrix, first, k), right(k), right(k + 8));
  }
  return sums;
}
/// The same for 16 columns of the matrix (Width, Width).
template <int Width, class Right>
__device__ Sums times_columns(Tile<Width> matrix, int first, const Right& right) {
  Sums sums = no_sums();
#pragma unroll
  for (int k = 0; k < Width; k += 16) {
    multiply_add(sums, left_of_transposed(matrix, k, first), right(k), right(k + 8));
  }
  return sums;
}

/// Calls take(row, sum of columns 0 and 1) for the 16 rows of sums with a split vector.
template <class Take>
__device__ void take_rows(const Sums& sums, int first, const Take& take) {
  const LanePlace lane = lane_place();
  if (lane.column != 0) return;
  take(first + lane.row, sums.value[0] + sums.value[1]);
  take(first + lane.row + 8, sums.value[2] + sums.value[3]);
}

}  // namespace adtrain::kernels::last_token
