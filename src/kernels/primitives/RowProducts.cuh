#pragma once

#include "kernels/primitives/ShortTile.cuh"

/// Products of rows in global memory with narrow matrices, without shared memory in between. A warp takes 16
/// rows at once. Each lane loads neighbouring columns, and the loaded registers are the fragments without any
/// rearrangement. This is possible because a product may sum in any order and its columns may be permuted, as
/// long as both operands agree.
///
/// Throughout, `row` is lane / 4 and `quad` is lane % 4. A warp works on Columns = 32 or 64 neighbouring
/// columns. Rows are of bits, which stand for elements of the type Short.
namespace adtrain::kernels {

struct QuadPlace {
  int row;   ///< 0 … 7
  int quad;  ///< 0 … 3
};
__device__ inline QuadPlace quad_place() {
  const int lane = threadIdx.x % kWarp;
  return {lane / 4, lane % 4};
}

/// Number of tiles of 8 columns.
template <int Columns>
constexpr int kTiles = Columns / 8;

// Rows as the result: lane (row, quad) holds whole chunks (8 neighbouring columns) of rows `row` and `row` +
// 8.

/// The column of element n of a tile. With this order, a lane's sums in four tiles form a chunk.
__device__ inline int chunk_column(int tile, int n) {
  return 8 * (4 * (tile / 4) + n / 2) + 2 * (tile % 4) + n % 2;
}
/// The first column of the chunk that the lane's sums in tiles 4 · number … 4 · number + 3 form.
__device__ inline int own_chunk(int number) {
  return 8 * (4 * number + quad_place().quad);
}

__device__ inline uint32_t word_of(const uint4& chunk, int number) {
  return number == 0 ? chunk.x : number == 1 ? chunk.y : number == 2 ? chunk.z : chunk.w;
}

/// The lane's chunks of `from`, a row of `Columns` elements.
template <int Columns>
struct Chunks {
  uint4 chunk[Columns / 32];

  __device__ explicit Chunks(const Bf16* from) {
#pragma unroll
    for (int number = 0; number < Columns / 32; ++number) {
      chunk[number] = __ldg(reinterpret_cast<const uint4*>(from + own_chunk(number)));
    }
  }
};

/// Adds the chunks to the lane's sums of one row; `half` is 0 for `row`, 1 for `row` + 8.
template <int Columns, class Short = Bf16>
__device__ void add_chunks(Sums (&sums)[kTiles<Columns>], int half, const Chunks<Columns>& chunks) {
#pragma unroll
  for (int number = 0; number < Columns / 32; ++number) {
    const uint4& chunk = chunks.chunk[number];
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float2 values = unpacked<Short>(word_of(chunk, pair));
      sums[4 * number + pair].value[2 * half] += values.x;
      sums[4 * number + pair].value[2 * half + 1] += values.y;
    }
  }
}

/// Writes scale · the lane's sums of one row, rounded, to `to`, a row of `Columns` elements.
template <int Columns, class Short = Bf16>
__device__ void store_chunks(const Sums (&sums)[kTiles<Columns>], int half, float scale, Bf16* to) {
#pragma unroll
  for (int number = 0; number < Columns / 32; ++number) {
    const auto pair = [&](int tile) {
      const float(&value)[4] = sums[4 * number + tile].value;
      return packed<Short>(scale * value[2 * half], scale * value[2 * half + 1]);
    };
    *reinterpret_cast<uint4*>(to + own_chunk(number)) = {pair(0), pair(1), pair(2), pair(3)};
  }
}

// Rows as the dimension of the sum: lane (row, quad) holds rows 4 · quad … 4 · quad + 3, of each the Columns
// / 8 columns from Columns / 8 · row on.

template <int Columns>
struct FourRows {
  static constexpr int kWords = Columns / 16;
  uint32_t word[4][kWords];

  /// `from`: the row's `Columns` elements, or null for zeros.
  __device__ void load(int number, const Bf16* from) {
    if constexpr (kWords == 4) {
      uint4 words = {0, 0, 0, 0};
      if (from != nullptr) words = __ldg(reinterpret_cast<const uint4*>(from) + quad_place().row);
      word[number][0] = words.x, word[number][1] = words.y, word[number][2] = words.z,
      word[number][3] = words.w;
    } else {
      uint2 words = {0, 0};
      if (from != nullptr) words = __ldg(reinterpret_cast<const uint2*>(from) + quad_place().row);
      word[number][0] = words.x, word[number][1] = words.y;
    }
  }
};

/// The left operand of sums over 16 rows. `low` holds element `row` of each of the lane's four rows, `high`
/// element `row` + 8.
template <class Short = Bf16>
__device__ LeftFragment left_of_rows(const float (&low)[4], const float (&high)[4]) {
  return {{packed<Short>(low[0], low[1]), packed<Short>(high[0], high[1]), packed<Short>(low[2], low[3]),
           packed<Short>(high[2], high[3])}};
}

/// sums += left · rows. The lane's sums are of the left operand's rows `row` (first two) and `row` + 8. For
/// their columns see store_sums().
template <int Columns, class Short = Bf16>
__device__ void add_product(Sums (&sums)[kTiles<Columns>], const LeftFragment& left,
                            const FourRows<Columns>& rows) {
#pragma unroll
  for (int tile = 0; tile < kTiles<Columns>; ++tile) {
    const unsigned halves = tile % 2 == 0 ? 0x5410 : 0x7632;  // the low or the high halves of two words
    const auto column = [&](int first) {
      return __byte_perm(rows.word[first][tile / 2], rows.word[first + 1][tile / 2], halves);
    };
    multiply_add<Short>(sums[tile], left, column(0), column(2));
  }
}

/// Writes scale · the sums of one of the lane's two rows of the left operand (`half` as above) to `to`, an
/// fp32 row of `Columns` elements.
template <int Columns>
__device__ void store_sums(const Sums (&sums)[kTiles<Columns>], int half, float scale, float* to) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    float* from_column = to + kTiles<Columns> * (2 * quad_place().quad + n);
    const auto sum = [&](int tile) { return scale * sums[tile].value[2 * half + n]; };
#pragma unroll
    for (int tile = 0; tile < kTiles<Columns>; tile += 4) {
      *reinterpret_cast<float4*>(from_column + tile) = {sum(tile), sum(tile + 1), sum(tile + 2),
                                                        sum(tile + 3)};
    }
  }
}

}  // namespace adtrain::kernels
