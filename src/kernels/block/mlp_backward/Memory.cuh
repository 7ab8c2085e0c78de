#pragma once

#include <cstdint>

#include "kernels/block/BlockTensors.h"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// What a launch works on, and what a thread block has in shared memory.
namespace adtrain::kernels::mlp_backward_pass {

constexpr int kTileRows = 64;
constexpr int kUnits = 32;  ///< hidden units of a warp: a word of dropout mask
constexpr int kUnitWarpTiles = kUnits / kWarpTile;
constexpr int kHeldRows = 32;   ///< rows whose hidden units a warp holds at once
constexpr int kChunk = 8;       ///< columns in 16 bytes
constexpr int kThreadRows = 2;  ///< neighbouring rows of a tile of which a thread has a chunk, stage norm
constexpr int kKeepStride = kTileRows + 4;  ///< so that words of 4 rows and 8 warps lie in 32 banks

constexpr uint32_t kOne = 0x3f80;  ///< 1 in 16 bit

/// What a block has in shared memory. Tile t is in the stage norm at step t, hidden at t + 1, input at t + 2.
template <int Width>
struct Memory {
  static constexpr int kInner = 4 * Width;
  static constexpr int kWarps = kInner / kUnits;
  static constexpr int kThreads = kWarps * kWarp;
  using Rows = Bf16[kTileRows * Width];
  using RowChunks = uint4[kThreadRows][kThreads];

  // bytes at D = 64
  Bf16 linear1[kInner * Width];    // 32 K  Tile<D>, (F, D): all the time
  Bf16 linear2[Width * kInner];    // 32 K  Tile<F>, (D, F): all the time
  Rows x1[2];                      // 16 K  Tile<D>: norm -> hidden
  Rows df[2];                      // 16 K  Tile<D>: norm -> hidden
  Rows du2[3];                     // 24 K  Tile<D>: norm -> input
  Bf16 dh[2][kInner * kTileRows];  // 64 K  Tile<64>, (F, rows), transposed: hidden -> input
  /// The next tile's rows on their way from global memory (24 K + 4 K), each element for the thread that has
  /// copied it: from the end of the stage norm of a tile to its beginning of the next tile.
  RowChunks dy, normed2, normed1;
  float inverse2[kThreadRows][kThreads];
  uint32_t output_keep[kThreadRows][kThreads];
  /// [word][row], 6.4 K: from one step before the stage norm to the stage hidden.
  uint32_t inner_keep[3][kInner / 32][kKeepStride];
  /// Each thread's sums over rows for norm2's weight and bias and for linear2's bias, 6 K, see
  /// add_over_rows(): all the time, as the stage hidden has no registers to spare.
  float4 norm2_sums[kThreads];
  float2 linear2_bias_sums[kThreads];
  Bf16 norm1_weight[Width], norm1_bias[Width], norm2_weight[Width],
      linear1_bias[kInner];  // 1 K: all the time
};

struct Arguments {
  BlockWeights weights;
  const uint32_t *inner_keep, *output_keep;
  float scale;  ///< of what dropout keeps, 1 without
  const Bf16 *dy, *normed1, *normed2;
  const float* inverse2;
  int64_t rows;
  Bf16* dx1;
  float* parts;
};

/// How many rows of a tile there are from `first` on.
__device__ inline int rows_from(const Arguments& arguments, int64_t first) {
  return static_cast<int>(min(arguments.rows - first, int64_t{kTileRows}));
}

__device__ inline int warp_number() {
  return threadIdx.x / kWarp;
}
__device__ inline int lane_number() {
  return threadIdx.x % kWarp;
}

/// Starts to copy what stays in shared memory.
template <int Width>
__device__ void fetch_weights(Memory<Width>& memory, const BlockWeights& weights) {
  constexpr int kInner = 4 * Width, kThreads = Memory<Width>::kThreads;
  const int thread = threadIdx.x;
  start_copy(Tile<Width>{memory.linear1}, weights.linear1_weight, kInner, thread, kThreads);
  start_copy(Tile<kInner>{memory.linear2}, weights.linear2_weight, Width, thread, kThreads);
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
