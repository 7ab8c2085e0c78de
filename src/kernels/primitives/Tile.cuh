#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "kernels/primitives/Instructions.cuh"

/// What the fused kernels are made of: 16-bit tiles in shared memory, the fragments of them that a warp holds
/// in registers, and the products of fragments on the tensor cores.
///
/// Fragments lie as in "mma.m16n8k16" of the PTX ISA. There a lane stands for two rows, `row` and `row` + 8
/// with row = lane / 4, and for pairs of neighbouring columns, `column` and `column` + 1 with column = 2
/// (lane % 4), again 8 columns further on, and so forth. So an accumulator that is rounded to 16 bit is the
/// left operand of the next product as it stands, and sums over a row are sums over the four lanes of a quad.
namespace adtrain::kernels {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

constexpr int kWarpTile = 16;  ///< rows that a warp works on at once
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

/// Where a lane's elements lie in a fragment.
struct LanePlace {
  int row;     ///< 0 … 7; the lane's other row is 8 further down
  int column;  ///< 0, 2, 4 or 6; the next one is the lane's too
};
__device__ inline LanePlace lane_place() {
  const int lane = threadIdx.x % kWarp;
  return {lane / 4, 2 * (lane % 4)};
}

/// Two values rounded to one register, the first in its low half.
__device__ inline uint32_t packed(float first, float second) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  return reinterpret_cast<const uint32_t&>(both);
}
__device__ inline float2 unpacked(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

/// 16 rows × 16 columns, the left operand: {rows, columns 0-7}, {rows + 8, 0-7}, {rows, 8-15}, {rows + 8,
/// 8-15}.
struct LeftFragment {
  uint32_t part[4];
};

/// The right operand of two neighbouring products: 16 (summed over) × 8 columns each.
struct RightFragments {
  uint32_t part[4];
};

/// 16 rows × 8 columns of sums: {row, column}, {row, column + 1}, {row + 8, column}, {row + 8, column + 1}.
struct Sums {
  float value[4];
};

__device__ inline Sums no_sums() {
  return {{0.0f, 0.0f, 0.0f, 0.0f}};
}

/// Sums that begin with a bias: `pair`, in shared memory, is the lane's two columns of it, in all rows.
__device__ inline Sums sums_from(const float* pair) {
  Sums sums;
  load_pair_twice(sums.value, pair);
  return sums;
}

/// sums += left · right, over 16.
__device__ inline void multiply_add(Sums& sums, const LeftFragment& left, uint32_t right_low,
                                    uint32_t right_high) {
  multiply_add(sums.value, left.part, right_low, right_high);
}

/// Two neighbouring products: 16 columns of sums.
__device__ inline void multiply_add(Sums& first, Sums& second, const LeftFragment& left,
                                    const RightFragments& right) {
  multiply_add(first, left, right.part[0], right.part[1]);
  multiply_add(second, left, right.part[2], right.part[3]);
}

/// sums += left · right, over 8: the first or, which = 1, second 8 columns of `left`.
__device__ inline void multiply_add_8(Sums& sums, const LeftFragment& left, int which, uint32_t right) {
  multiply_add_8(sums.value, left.part[2 * which], left.part[2 * which + 1], right);
}
/// The same with 8 columns alone.
__device__ inline void multiply_add_8(Sums& sums, const uint32_t (&left)[2], uint32_t right) {
  multiply_add_8(sums.value, left[0], left[1], right);
}

/// Sums of 16 neighbouring columns as a left operand.
__device__ inline LeftFragment as_left(const Sums& first, const Sums& second) {
  return {{packed(first.value[0], first.value[1]), packed(first.value[2], first.value[3]),
           packed(second.value[0], second.value[1]), packed(second.value[2], second.value[3])}};
}

/// Elementwise.
__device__ inline LeftFragment multiplied(const LeftFragment& left, const LeftFragment& right) {
  LeftFragment products;
#pragma unroll
  for (int i = 0; i < 4; ++i) products.part[i] = multiplied(left.part[i], right.part[i]);
  return products;
}

/// Columns as rows.
__device__ inline LeftFragment transposed(const LeftFragment& left) {
  return {{transposed(left.part[0]), transposed(left.part[2]), transposed(left.part[1]),
           transposed(left.part[3])}};
}

/// Over the four lanes that share a row.
__device__ inline float quad_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}
__device__ inline float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}

/// Over all lanes of a warp.
__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
  return value;
}
__device__ inline float warp_max(float value) {
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, apart));
  }
  return value;
}

/// A row-major matrix of 16-bit values in shared memory, `Width` columns. Its 16-byte chunks are swapped
/// within a row, another way for each of 8 neighbouring rows, so that ldmatrix, which reads 8 rows at once,
/// and pairs stored by a warp meet no bank twice. The same bytes are read as they stand and transposed.
/// 16-byte aligned.
template <int Width>
struct Tile {
  static_assert(Width == 32 || Width % 64 == 0, "the swizzle is made for rows of 64 or n · 128 bytes");
  static constexpr int kWidth = Width;

  Bf16* data;

  static constexpr int bytes(int rows) { return rows * Width * static_cast<int>(sizeof(Bf16)); }

  /// Of the element; those of a chunk (8 columns from a multiple of 8) lie side by side.
  __device__ static int place(int row, int column) {
    const int key = Width == 32 ? (row >> 1) & 3 : row & 7;
    return row * Width + ((column & ~7) ^ (key << 3)) + (column & 7);
  }
  __device__ Bf16* at(int row, int column) const { return data + place(row, column); }
  /// `column` even: a lane's pair.
  __device__ uint32_t pair(int row, int column) const {
    return *reinterpret_cast<const uint32_t*>(at(row, column));
  }
  __device__ void set_pair(int row, int column, uint32_t value) const {
    *reinterpret_cast<uint32_t*>(at(row, column)) = value;
  }
};

/// Where the row begins that a lane names to ldmatrix and stmatrix. Rows first: of left_of() and right_of().
/// Columns first: of their transposes.
template <int Width>
__device__ uint32_t rows_first(Tile<Width> tile, int row, int column) {
  const int lane = threadIdx.x % kWarp;
  return shared_address(tile.at(row + lane % 16, column + 8 * (lane / 16)));
}
template <int Width>
__device__ uint32_t columns_first(Tile<Width> tile, int row, int column) {
  const int lane = threadIdx.x % kWarp;
  return shared_address(tile.at(row + lane % 8 + 8 * (lane / 16), column + 8 * (lane / 8 % 2)));
}

/// left[i][k] = tile[row + i][column + k].
template <int Width>
__device__ LeftFragment left_of(Tile<Width> tile, int row, int column) {
  LeftFragment left;
  load_matrices(left.part, rows_first(tile, row, column));
  return left;
}

/// left[i][k] = tile[row + k][column + i]: the tile's transpose, for sums over its rows.
template <int Width>
__device__ LeftFragment left_of_transposed(Tile<Width> tile, int row, int column) {
  LeftFragment left;
  load_matrices_transposed(left.part, columns_first(tile, row, column));
  return left;
}

/// right[k][j] = tile[row + j][column + k], j = 0 … 15: for x · Wᵀ with W (out, in) in the tile.
template <int Width>
__device__ RightFragments right_of_transposed(Tile<Width> tile, int row, int column) {
  RightFragments right;
  load_matrices(right.part, columns_first(tile, row, column));
  return right;
}

/// right[k][j] = tile[row + k][column + j], j = 0 … 15: for y · W with W (out, in), or a product over the
/// tile's rows.
template <int Width>
__device__ RightFragments right_of(Tile<Width> tile, int row, int column) {
  RightFragments right;
  load_matrices_transposed(right.part, rows_first(tile, row, column));
  return right;
}

/// Starts to copy the first `rows` rows of a row-major matrix in global memory, `from` (rows, Width), into
/// the tile, by `threads` threads of which this is number `thread`.
template <int Width>
__device__ void start_copy(Tile<Width> tile, const Bf16* from, int rows, int thread, int threads) {
  constexpr int kChunks = Width / 8;
  for (int chunk = thread; chunk < rows * kChunks; chunk += threads) {
    const int row = chunk / kChunks, column = 8 * (chunk % kChunks);
    start_copy(tile.at(row, column), from + row * Width + column);
  }
}

/// tile[row + i][column + k] = left[i][k]: 16 rows × 16 columns, as left_of() reads them.
template <int Width>
__device__ void set_left(Tile<Width> tile, int row, int column, const LeftFragment& left) {
  store_matrices(rows_first(tile, row, column), left.part);
}

/// The tile from this row on, a multiple of 8: the swizzle begins anew there. For loops over rows: what a
/// lane adds to reach its place stays the same.
template <int Width>
__device__ Tile<Width> from_row(Tile<Width> tile, int row) {
  return {tile.data + row * Width};
}

/// The same for rows and columns that are multiples of 16, with the lane's number given. Of an address, what
/// depends on the lane depends on neither tile nor row then, and on the column by an exclusive or alone: a
/// loop over rows adds a constant, and one register serves a column of all tiles. A lane's number that is
/// read anew (%laneid, in volatile assembly) keeps these registers to the part of a kernel that needs them.
__device__ inline LanePlace lane_place(unsigned lane) {
  return {static_cast<int>(lane / 4), static_cast<int>(2 * (lane % 4))};
}

/// Where the lane's row of a fragment begins that would be row `lane_row`, from `lane_column` on, at (0, 0).
template <int Width>
__device__ uint32_t fragment_address(Tile<Width> tile, int row, int column, int lane_row, int lane_column) {
  constexpr int kBytes = static_cast<int>(sizeof(Bf16));
  const int of_lane = Tile<Width>::place(lane_row, lane_column) * kBytes;
  return shared_address(tile.data) + row * Width * kBytes + (of_lane ^ column * kBytes);
}
template <int Width>
__device__ uint32_t rows_first(Tile<Width> tile, int row, int column, unsigned lane) {
  return fragment_address(tile, row, column, lane % 16, 8 * (lane / 16));
}
template <int Width>
__device__ uint32_t columns_first(Tile<Width> tile, int row, int column, unsigned lane) {
  return fragment_address(tile, row, column, lane % 8 + 8 * (lane / 16), 8 * (lane / 8 % 2));
}

template <int Width>
__device__ LeftFragment left_of(Tile<Width> tile, int row, int column, unsigned lane) {
  LeftFragment left;
  load_matrices(left.part, rows_first(tile, row, column, lane));
  return left;
}
template <int Width>
__device__ RightFragments right_of_transposed(Tile<Width> tile, int row, int column, unsigned lane) {
  RightFragments right;
  load_matrices(right.part, columns_first(tile, row, column, lane));
  return right;
}
template <int Width>
__device__ RightFragments right_of(Tile<Width> tile, int row, int column, unsigned lane) {
  RightFragments right;
  load_matrices_transposed(right.part, rows_first(tile, row, column, lane));
  return right;
}
template <int Width>
__device__ void set_left(Tile<Width> tile, int row, int column, const LeftFragment& left, unsigned lane) {
  store_matrices(rows_first(tile, row, column, lane), left.part);
}

}  // namespace adtrain::kernels
