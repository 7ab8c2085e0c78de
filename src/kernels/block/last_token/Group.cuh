#pragma once

#include <cstdint>

#include "kernels/block/last_token/LastTokenBlock.cuh"
#include "kernels/block/last_token/SplitVector.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/TransposeInstruction.cuh"

/// The threads that work on a sequence, and their products of its x with one or two vectors of each head: as
/// many sequences are under way in a thread block as fit in shared memory.
namespace adtrain::kernels::last_token {

constexpr int kGroups = 4;  ///< of a thread block
constexpr int kGroupWarps = 4;
constexpr int kGroupThreads = kGroupWarps * kWarp;
constexpr int kBlockThreads = kGroups * kGroupThreads;

/// Vectors of heads in shared memory, two columns for each head: four heads have the eight columns of a right
/// operand. A row of eight is what ldmatrix reads, straight for sums over heads, transposed for sums over
/// features.
template <int Width, int Heads>
using HeadColumns = Bf16[(Heads + 3) / 4][Width][8];

/// What a group's warps have of a sequence's sums over tokens.
template <int Width, int Heads>
using SumsOfWarps = float[kGroupWarps][(Heads + 3) / 4][Width][8];

template <int Width, int HeadSize>
class Group {
 protected:
  static constexpr int kHeads = Width / HeadSize, kFours = (kHeads + 3) / 4;
  static constexpr int kRowTiles = Width / kWarpTile;
  static constexpr float kScale = HeadSize == 8    ? 0.353553391f
                                  : HeadSize == 16 ? 0.25f
                                                   : 0.176776695f;  ///< 1 / √d
  /// A warp has 32 of each 128 tokens.
  static constexpr int kTilesOfWarp = kMostTokens / kWarpTile / kGroupWarps;
  static constexpr int kWordsOfWarp = kTilesOfWarp / 2;
  using Columns = HeadColumns<Width, kHeads>;

  /// A barrier for the group's threads only.
  __device__ void barrier() const { group_barrier(1 + group_, kGroupThreads); }

  /// The column that this thread has where threads have one column each, in the group's last warps; in the
  /// others it is less than 0.
  __device__ int own_column() const { return thread_ - (kGroupThreads - Width); }

  /// The head whose two columns the lane has of sums, of four heads together.
  __device__ int own_head(int four) const { return 4 * four + lane_.column / 2; }

  /// The first token of the warp's tile `number`.
  __device__ int token_of(int number) const {
    return kWarpTile * (2 * warp_ + number % 2 + 2 * kGroupWarps * (number / 2));
  }

  /// Calls of_tile(first row) for the warp's tile of 16 of `Width` rows or columns, if it has one.
  template <class OfTile>
  __device__ void for_row_tile(const OfTile& of_tile) const {
    static_assert(kRowTiles <= kGroupWarps, "one tile for a warp");
    if (warp_ < kRowTiles) of_tile(warp_ * kWarpTile);
  }

  /// Starts to copy a sequence's x, and zeros to the end of its last warp tile.
  __device__ void start_copy_x(Tile<Width> x, const Bf16* from, int tokens) const {
    constexpr int kChunks = Width / 8;
    const int rows = (tokens + kWarpTile - 1) / kWarpTile * kWarpTile;
#pragma unroll 1
    for (int chunk = thread_; chunk < rows * kChunks; chunk += kGroupThreads) {
      const int row = chunk / kChunks;
      const bool copied = row < tokens;
      start_copy_or_clear(x.at(row, 8 * (chunk % kChunks)), copied ? from + 8 * chunk : from, copied);
    }
  }

  /// Reads the dropout of the attention weights of a sequence, with bits for all tokens of the warp.
  template <bool Dropout>
  __device__ void read_attention_dropout(const uint32_t* words, int sequence, int tokens) {
    const int count = (tokens + 31) / 32;
#pragma unroll
    for (int i = 0; i < kWordsOfWarp; ++i) {
      const int word = token_of(2 * i) / 32;
#pragma unroll
      for (int four = 0; four < kFours; ++four) {
        const int head = min(own_head(four), kHeads - 1);
        kept_[i][four] =
            Dropout && word < count ? __ldg(words + (int64_t{sequence} * kHeads + head) * count + word) : 0;
      }
    }
  }
  template <bool Dropout>
  __device__ bool keeps(int number, int four, int token) const {
    static_assert(kWordsOfWarp == 2, "words in registers, which no variable can index");
    const uint32_t word = number < 2 ? kept_[0][four] : kept_[1][four];
    return !Dropout || (word >> (token % 32) & 1) != 0;
  }

  /// Eight columns for four heads as right operands: of products that sum over 32 features.
  __device__ RightFragments over_features(const Bf16 (&columns)[Width][8], int first) const {
    RightFragments right;
    load_matrices_transposed(right.part, shared_address(columns[first + thread_ % kWarp]));
    return right;
  }

  /// x of 16 tokens times each of the `Parts` columns of heads.
  template <int Parts>
  __device__ void times_columns_of_heads(Sums (&products)[Parts][kFours], Tile<Width> x, int token,
                                         const Columns (&columns)[Parts]) const {
#pragma unroll
    for (int column = 0; column < Width; column += 32) {
      const LeftFragment low = left_of(x, token, column), high = left_of(x, token, column + 16);
#pragma unroll
      for (int part = 0; part < Parts; ++part) {
#pragma unroll
        for (int four = 0; four < kFours; ++four) {
          const RightFragments right = over_features(columns[part][four], column);
          multiply_add(products[part][four], low, right.part[0], right.part[1]);
          multiply_add(products[part][four], high, right.part[2], right.part[3]);
        }
      }
    }
  }

  /// sums += the transpose of x of 16 tokens times their weights, of which the lane has pairs: of its token
  /// and of that 8 further, of each head.
  __device__ void add_tokens(Sums (&sums)[kRowTiles][kFours], Tile<Width> x, int token,
                             const uint32_t (&pairs)[kFours][2]) const {
    uint32_t right[kFours][2];
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      right[four][0] = transposed_matrix(pairs[four][0]);
      right[four][1] = transposed_matrix(pairs[four][1]);
    }
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      const LeftFragment left = left_of_transposed(x, token, tile * kWarpTile);
#pragma unroll
      for (int four = 0; four < kFours; ++four) {
        multiply_add(sums[tile][four], left, right[four][0], right[four][1]);
      }
    }
  }

  __device__ void put_sums(const Sums (&sums)[kRowTiles][kFours],
                           SumsOfWarps<Width, kHeads>& of_warps) const {
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        const float(&value)[4] = sums[tile][four].value;
        float(*to)[8] = of_warps[warp_][four] + tile * kWarpTile + lane_.row;
        *reinterpret_cast<float2*>(to[0] + lane_.column) = {value[0], value[1]};
        *reinterpret_cast<float2*>(to[8] + lane_.column) = {value[2], value[3]};
      }
    }
  }

  /// The sum over the lanes that have the same head's columns.
  __device__ static float sum_of_tokens(float value) {
#pragma unroll
    for (int apart = 4; apart < kWarp; apart *= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
    return value;
  }
  __device__ static float most_of_tokens(float value) {
#pragma unroll
    for (int apart = 4; apart < kWarp; apart *= 2) {
      value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, apart));
    }
    return value;
  }
  /// The sum over the threads that have a head's columns.
  __device__ static float sum_of_head(float value) {
#pragma unroll
    for (int apart = HeadSize / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
    return value;
  }

  /// sums += left · 16 rows of a vector, each in the column `column` of its head, 0 or 1.
  __device__ void add_by_heads(Sums& sums, const LeftFragment& left, const Bf16* vector, int row,
                               int column) const {
    const auto right = [&](int first) {
      const uint32_t pair = *reinterpret_cast<const uint32_t*>(vector + first + lane_.column);
      return lane_.row == 2 * (first / HeadSize % 4) + column ? pair : 0;
    };
    multiply_add(sums, left, right(row), right(row + 8));
  }

  /// Multiplies 16 rows of the matrix, each with the sum of the two columns of its head, and calls take(row,
  /// product).
  template <class Take>
  __device__ void times_own_head(Tile<Width> matrix, int first, const Columns& columns,
                                 const Take& take) const {
    const auto& of_heads = columns[first / HeadSize / 4];
    Sums sums = no_sums();
#pragma unroll
    for (int column = 0; column < Width; column += 32) {
      const RightFragments right = over_features(of_heads, column);
      multiply_add(sums, left_of(matrix, first, column), right.part[0], right.part[1]);
      multiply_add(sums, left_of(matrix, first, column + 16), right.part[2], right.part[3]);
    }
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      const int row = first + lane_.row + 8 * lower;
      if (lane_.column / 2 == row / HeadSize % 4)
        take(row, sums.value[2 * lower] + sums.value[2 * lower + 1]);
    }
  }

  /// Sets the two columns of a head in one row to a value, split.
  __device__ static void set_split(Columns& columns, int head, int row, float value) {
    set_pair(columns[head / 4][row], head % 4 * 2, split_of(value));
  }
  __device__ static void set_pair(Bf16 (&row)[8], int column, uint32_t pair) {
    *reinterpret_cast<uint32_t*>(row + column) = pair;
  }

  int group_ = threadIdx.x / kGroupThreads, thread_ = threadIdx.x % kGroupThreads, warp_ = thread_ / kWarp;
  LanePlace lane_ = lane_place();
  uint32_t kept_[kWordsOfWarp][kFours];
};

}  // namespace adtrain::kernels::last_token
