#pragma once

#include <cstdint>

#include "kernels/block/BlockTensors.h"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/WarpgroupProducts.cuh"

/// The arguments of a launch, and a thread block's shared memory.
namespace adtrain::kernels::mlp_backward_pass {

constexpr int kTileRows = 64;
constexpr int kUnits = 32;  ///< hidden units of a dropout word; a warp has as many, in two warp tiles
constexpr int kUnitWarpTiles = kUnits / kWarpTile;
constexpr int kHeldRows = 32;   ///< rows whose hidden units a warp holds at once
constexpr int kChunk = 8;       ///< columns in 16 bytes
constexpr int kThreadRows = 2;  ///< neighbouring rows of which a thread has a chunk in the norm stage
constexpr int kNormWarps = kWarpsOfGroup, kNormThreads = kNormWarps * kWarp;  ///< of the norm stage
constexpr int kKeepStride = kTileRows + 4;  ///< puts 8 words of 4 rows in 32 different banks

constexpr uint32_t kOne = 0x3f80;  ///< 1 in bf16

/// A thread block's shared memory. At step t, tile t is in the stage norm, tile t − 1 in hidden, tile t − 2
/// in input.
template <int Width>
struct Memory {
  static constexpr int kInner = 4 * Width;
  static constexpr int kHiddenThreads = kInner / kUnits * kWarp;  ///< of the hidden and the input stage
  static constexpr int kThreads = kHiddenThreads + kNormThreads;
  /// Rows of a tile that the norm stage works on at once, and how often it has some.
  static constexpr int kRowsAtOnce = kNormThreads * kThreadRows * kChunk / Width,
                       kTurns = kTileRows / kRowsAtOnce;
  using Rows = Bf16[kTileRows * Width];
  using RowChunks = uint4[kTurns][kThreadRows][kNormThreads];

  // bytes at D = 64
  Bf16 linear1[kInner * Width];    // 32 K Tile<D>, (F, D): whole launch
  Bf16 linear2[kInner * Width];    // 32 K Tile<D>, (F, D), transposed: whole launch
  Rows x1[2];                      // 16 K  Tile<D>: norm -> hidden
  Rows df[2];                      // 16 K  Tile<D>: norm -> hidden
  Rows du2[3];                     // 24 K  Tile<D>: norm -> input
  Bf16 dh[2][kInner * kTileRows];  // 64 K  Tile<64>, (F, rows), transposed: hidden -> input
  /// The next tile's rows, copied from global memory (24 K + 4 K). Each element is read by the thread that
  /// has copied it. In use from the end of one tile's norm stage to the beginning of the next tile's.
  RowChunks dy, normed2, normed1;
  float inverse2[kTurns][kThreadRows][kNormThreads];
  uint32_t output_keep[kTurns][kThreadRows][kNormThreads];
  /// [word][row], 6.4 K: from one step before the norm stage to the hidden stage.
  uint32_t inner_keep[3][kInner / 32][kKeepStride];
  /// Each thread's sums over rows for norm2's weight and bias and for linear2's bias, 3 K; see
  /// add_over_rows(). They stay here for the whole launch.
  float4 norm2_sums[kNormThreads];
  float2 linear2_bias_sums[kNormThreads];
  Bf16 norm1_weight[Width], norm1_bias[Width], norm2_weight[Width],
      linear1_bias[kInner];  // 1 K: whole launch
};

struct Arguments {
  BlockWeights weights;
  const uint32_t *inner_keep, *output_keep;
  float scale;  ///< of kept elements; 1 without dropout
  const Bf16 *dy, *normed1, *normed2;
  const float* inverse2;
  int64_t rows;
  Bf16* dx1;
  float* parts;
};

/// How many rows the tile has that begins at row `first`.
__device__ inline int rows_from(const Arguments& arguments, int64_t first) {
  return static_cast<int>(min(arguments.rows - first, int64_t{kTileRows}));
}

__device__ inline int warp_number() {
  return threadIdx.x / kWarp;
}
__device__ inline int lane_number() {
  return threadIdx.x % kWarp;
}

/// The thread's number among those of the norm stage, which come last.
template <int Width>
__device__ int norm_thread() {
  return static_cast<int>(threadIdx.x) - Memory<Width>::kHiddenThreads;
}
/// Products have 64 hidden units as rows, 16 of each warp: the first unit of the warpgroup's product, one of
/// two, and the warp's first.
__device__ inline int group_unit(int warp_tile) {
  return (kUnitWarpTiles * (warp_number() / kWarpsOfGroup) + warp_tile) * kGroupRows;
}
__device__ inline int first_unit(int warp_tile) {
  return group_unit(warp_tile) + warp_number() % kWarpsOfGroup * kWarpTile;
}

/// Transposes linear2's weight into its tile: a lane has two neighbouring rows of the weight, so that, at
/// width 64, the pairs that a warp stores lie in different banks.
template <int Width>
__device__ void transpose_linear2(Memory<Width>& memory, const Bf16* weight) {
  constexpr int kInner = 4 * Width, kRowPairs = Width / 2;
  constexpr int kStep = kChunk * Memory<Width>::kHiddenThreads / kRowPairs, kTurns = kInner / kStep;
  const Tile<Width> to{memory.linear2};
  const int thread = static_cast<int>(threadIdx.x), row = 2 * (thread % kRowPairs),
            column = kChunk * (thread / kRowPairs);
  uint4 chunks[kTurns][2];  // all loads are on their way together
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Bf16* const from = weight + (row + i) * kInner + column + kStep * turn;
      chunks[turn][i] = __ldg(reinterpret_cast<const uint4*>(from));
    }
  }
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto& [first, second] = chunks[turn];
    const uint32_t pairs[kChunk / 2][2] = {
        {first.x, second.x}, {first.y, second.y}, {first.z, second.z}, {first.w, second.w}};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const auto& [of_first, of_second] = pairs[i / 2];
      to.set_pair(column + kStep * turn + i, row,
                  __byte_perm(of_first, of_second, i % 2 == 0 ? 0x5410 : 0x7632));
    }
  }
}

/// Starts to copy the weights that stay in shared memory.
template <int Width>
__device__ void fetch_weights(Memory<Width>& memory, const BlockWeights& weights) {
  constexpr int kInner = 4 * Width, kThreads = Memory<Width>::kThreads;
  const int thread = threadIdx.x;
  start_copy(Tile<Width>{memory.linear1}, weights.linear1_weight, kInner, thread, kThreads);
  if (thread < Memory<Width>::kHiddenThreads) transpose_linear2(memory, weights.linear2_weight);
  if (thread < kInner / kChunk) {
    start_copy(memory.linear1_bias + kChunk * thread, weights.linear1_bias + kChunk * thread);
  }
  if (thread < Width / kChunk) {
    start_copy(memory.norm1_weight + kChunk * thread, weights.norm1_weight + kChunk * thread);
    start_copy(memory.norm1_bias + kChunk * thread, weights.norm1_bias + kChunk * thread);
    start_copy(memory.norm2_weight + kChunk * thread, weights.norm2_weight + kChunk * thread);
  }
}

}  // namespace adtrain::kernels::mlp_backward_pass
