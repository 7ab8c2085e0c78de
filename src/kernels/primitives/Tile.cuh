#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "kernels/primitives/Instructions.cuh"

/// The building blocks of the fused kernels: 16-bit tiles in shared memory, fragments of them in a warp's
/// registers, and products of fragments on the tensor cores.
///
/// Fragments have the layout of "mma.m16n8k16" in the PTX ISA. A lane holds elements of two rows, `row` and
/// `row` + 8 with row = lane / 4. In each it holds pairs of neighbouring columns, `column` and `column` + 1
/// with column = 2 (lane % 4), then the same 8 columns further, and so on. So an accumulator that is rounded
/// to 16 bit is the left operand of the next product without rearrangement. A sum over a row is a sum over
/// the four lanes of a quad.
namespace adtrain::kernels {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

constexpr int kWarpTile = 16;  ///< rows that a warp works on at once
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

/// The position of a lane's elements in a fragment.
struct LanePlace {
  int row;     ///< 0 … 7; the lane's other row is 8 further down
  int column;  ///< 0, 2, 4 or 6; the next column is the lane's too
};
__device__ inline LanePlace lane_place() {
  const int lane = threadIdx.x % kWarp;
  return {lane / 4, 2 * (lane % 4)};
}

/// Two values, rounded, in one register; the first is in its low half.
__device__ inline uint32_t packed(float first, float second) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  return reinterpret_cast<const uint32_t&>(both);
}
__device__ inline float2 unpacked(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

/// The left operand, 16 rows × 16 columns: {row, columns 0-7}, {row + 8, 0-7}, {row, 8-15}, {row + 8, 8-15}.
struct LeftFragment {
  uint32_t part[4];
};

/// The right operands of two neighbouring products, each 16 (summed over) × 8 columns.
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

/// Sums that begin with a bias. `pair` points to the bias of the lane's two columns in shared memory; it is
/// the same for all rows.
__device__ inline Sums sums_from(const float* pair) {
  Sums sums;
  load_pair_twice(sums.value, pair);
  return sums;
}

/// sums += left · right. The product sums over 16.
__device__ inline void multiply_add(Sums& sums, const LeftFragment& left, uint32_t right_low,
                                    uint32_t right_high) {
  multiply_add(sums.value, left.part, right_low, right_high);
}

/// Two neighbouring products, which make 16 columns of sums.
__device__ inline void multiply_add(Sums& first, Sums& second, const LeftFragment& left,
                                    const RightFragments& right) {
  multiply_add(first, left, right.part[0], right.part[1]);
  multiply_add(second, left, right.part[2], right.part[3]);
}

/// sums += left · right. The product sums over 8: the first 8 columns of `left`, or the second 8 where which
/// = 1.
__device__ inline void multiply_add_8(Sums& sums, const LeftFragment& left, int which, uint32_t right) {
  multiply_add_8(sums.value, left.part[2 * which], left.part[2 * which + 1], right);
}
/// The same for a left operand of 8 columns.
__device__ inline void multiply_add_8(Sums& sums, const uint32_t (&left)[2], uint32_t right) {
  multiply_add_8(sums.value, left[0], left[1], right);
}

/// Rounds the sums of 16 neighbouring columns to a left operand.
__device__ inline LeftFragment as_left(const Sums& first, const Sums& second) {
  return {{packed(first.value[0], first.value[1]), packed(first.value[2], first.value[3]),
           packed(second.value[0], second.value[1]), packed(second.value[2], second.value[3])}};
}

/// The elementwise product.
__device__ inline LeftFragment multiplied(const LeftFragment& left, const LeftFragment& right) {
  LeftFragment products;
#pragma unroll
  for (int i = 0; i < 4; ++i) products.part[i] = multiplied(left.part[i], right.part[i]);
  return products;
}

/// The sum and the maximum over the four lanes that share a row.
__device__ inline float quad_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}
__device__ inline float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}

/// The sum and the maximum over all lanes of a warp.
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

/// A row-major matrix of 16-bit values in shared memory with `Width` columns, aligned to 16 bytes. The
/// 16-byte chunks of a row are permuted in a way that depends on the row. So ldmatrix, which reads 8 rows at
/// once, and the stores of a warp's pairs have no bank conflicts. The same tile can be read directly and
/// transposed.
template <int Width>
struct Tile {
  static_assert(Width == 16 || Width == 32 || Width % 64 == 0,
                "the swizzle is made for rows of 32, 64 or n · 128 bytes");
  static constexpr int kWidth = Width;

  Bf16* data;

  static constexpr int bytes(int rows) { return rows * Width * static_cast<int>(sizeof(Bf16)); }

  /// The index of an element. The elements of a chunk (8 columns from a multiple of 8) are contiguous.
  __device__ static int place(int row, int column) {
    const int key = Width == 16 ? (row >> 2) & 1 : Width == 32 ? (row >> 1) & 3 : row & 7;
    return row * Width + ((column & ~7) ^ (key << 3)) + (column & 7);
  }
  __device__ Bf16* at(int row, int column) const { return data + place(row, column); }
  /// A lane's pair of neighbouring columns; `column` is even.
  __device__ uint32_t pair(int row, int column) const {
    return *reinterpret_cast<const uint32_t*>(at(row, column));
  }
  __device__ void set_pair(int row, int column, uint32_t value) const {
    *reinterpret_cast<uint32_t*>(at(row, column)) = value;
  }
};

/// The address of the row that a lane passes to ldmatrix and stmatrix. rows_first() is for left_of() and
/// right_of(), columns_first() for their transposed variants.
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

/// Starts to copy the first `rows` rows of `from` (rows, Width), a row-major matrix in global memory, into
/// the tile. This thread is number `thread` of `threads` threads.
template <int Width>
__device__ void start_copy(Tile<Width> tile, const Bf16* from, int rows, int thread, int threads) {
  constexpr int kChunks = Width / 8;
  for (int chunk = thread; chunk < rows * kChunks; chunk += threads) {
    const int row = chunk / kChunks, column = 8 * (chunk % kChunks);
    start_copy(tile.at(row, column), from + row * Width + column);
  }
}

/// tile[row + i][column + k] = left[i][k] for 16 rows × 16 columns; left_of() reads them back.
template <int Width>
__device__ void set_left(Tile<Width> tile, int row, int column, const LeftFragment& left) {
  store_matrices(rows_first(tile, row, column), left.part);
}

/// The tile from this row on. `row` is a multiple of 8, where the swizzle pattern repeats. In a loop over
/// rows the lane's offset then stays constant.
template <int Width>
__device__ Tile<Width> from_row(Tile<Width> tile, int row) {
  return {tile.data + row * Width};
}

/// The functions below do the same for rows and columns that are multiples of 16, with the lane's number as
/// an argument. Then the part of an address that depends on the lane is independent of the tile and the row,
/// and the column enters only by an exclusive or. A loop over rows adds a constant, and one register serves
/// one column of all tiles. With a lane number from lane_anew(), these registers are occupied only in the
/// part of a kernel that needs them.
__device__ inline LanePlace lane_place(unsigned lane) {
  return {static_cast<int>(lane / 4), static_cast<int>(2 * (lane % 4))};
}

/// The shared-memory address that the lane passes for the fragment at (row, column). For the fragment at (0,
/// 0) it would be that of element (lane_row, lane_column).
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
