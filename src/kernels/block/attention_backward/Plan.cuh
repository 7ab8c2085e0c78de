#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/resident/backward/Round.cuh"
#include "kernels/block/pre_norm/PreNormTensors.h"
#include "kernels/primitives/PartialSums.cuh"
#include "kernels/primitives/Tile.cuh"

/// The arguments of a launch, and the plan of its thread blocks.
namespace adtrain::kernels::backward_pass {

constexpr int kSharedBytes = 227 * 1024;     ///< of a thread block
constexpr int kProcessorBytes = 228 * 1024;  ///< of a multiprocessor
constexpr int kReservedBytes = 1024;         ///< of shared memory, per thread block, in addition to its own

/// The arguments of a launch.
struct Job {
  BlockShape shape;
  BlockWeights weights;
  DropoutMasks keep;
  BlockActivations activations;
  const Bf16* dx1;
  Bf16* dx;
  float* parts;
  Bf16* carried;
  UnaddedParts ahead;
};

/// For a pre-norm block: `activations.x` is n1, and `dx` is its gradient. Members that only a post-norm block
/// needs are null.
struct RopeJob : Job {
  const float *cosines, *sines;
};

/// The two kinds of block, as far as their attention sublayers differ.
template <bool Padded>
struct PostNorm {
  using Job = backward_pass::Job;
  using Gradients = AttentionGradients;
  static constexpr bool kNormAfter = true;  ///< whether dropout, the residual sum and norm1 follow out_proj
  static constexpr bool kHasRope = false;   ///< whether queries and keys are rotated by their positions
  static constexpr bool kByHeads = false;   ///< in_proj's rows are ordered by heads, else by thirds
  static constexpr bool kPadded = Padded;   ///< whether sequences may begin with padding
};
struct PreNorm {
  using Job = RopeJob;
  using Gradients = PreNormAttentionGradients;
  static constexpr bool kNormAfter = false;
  static constexpr bool kHasRope = true;
  static constexpr bool kByHeads = true;
  static constexpr bool kPadded = false;
};

/// The template arguments of a kernel.
template <class OfBlock, int Width, int HeadSize, bool Dropout, bool Streams>
struct Variant {
  using Block = OfBlock;
  static constexpr int kWidth = Width, kHeadSize = HeadSize;
  static constexpr bool kDropout = Dropout, kStreams = Streams;

  /// in_proj's row for a column of the queries, keys or values (`third` 0, 1, 2).
  __host__ __device__ static constexpr int in_proj_row(int third, int column) {
    if (!Block::kByHeads) return third * Width + column;
    return (column / HeadSize * 3 + third) * HeadSize + column % HeadSize;
  }
  /// The inverse: in_proj's row `row` is row third · Width + column in shared memory.
  __host__ __device__ static constexpr int by_thirds(int row) {
    if (!Block::kByHeads) return row;
    return row / HeadSize % 3 * Width + row / (3 * HeadSize) * HeadSize + row % HeadSize;
  }
};

/// The gradients of keys and values that a thread block carries from a sequence's queries to its context.
__host__ __device__ constexpr int carried_elements(int width) {
  return 2 * kMostTokens * width;
}

/// The plan of a thread block. Offsets in shared memory are in bytes.
template <int Width, int HeadSize>
struct Plan {
  static constexpr int kHeads = Width / HeadSize;
  static constexpr int kWarps = Width / 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kBlocks = 64 / Width;  ///< per multiprocessor
  static constexpr int kTilesOfWarp = kMostWarpTiles / kWarps;
  static constexpr int kCarried = carried_elements(Width);

  static constexpr int kTile = Tile<Width>::bytes(kMostTokens);
  static constexpr int kOutProjBytes = Tile<Width>::bytes(Width), kInProjBytes = 3 * kOutProjBytes;
  static constexpr int kScoreVectors = kHeads * kMostTokens;  ///< elements of minus_log, and of minus_delta
  static constexpr int kScoreBytes = 2 * kScoreVectors * static_cast<int>(sizeof(float));

  static constexpr int kInProj = 6 * kTile;
  static constexpr int kOutProj = kInProj + kInProjBytes;
  static constexpr bool kInProjStays = kScoreBytes <= 8 * 1024;
  static constexpr int kScores = kInProjStays ? kOutProj : kInProj;
  static constexpr int kInverse =
      kOutProj + (kInProjStays ? std::max(kOutProjBytes, kScoreBytes) : kOutProjBytes);
  static constexpr int kVectors = kInverse + kMostTokens * static_cast<int>(sizeof(float));
  static constexpr int kNextKeys = kVectors + 4 * Width * static_cast<int>(sizeof(Bf16));
  static constexpr int kBytes = kNextKeys + static_cast<int>(sizeof(int4));

  static_assert(kInProjStays || kScoreBytes <= kInProjBytes, "the place of in_proj is large enough");
  static_assert(partial_sums::bytes_for(kThreads) <= kBytes, "room for the sums of the kernel before");
  static_assert(kBytes <= kSharedBytes, "a thread block's shared memory");
  static_assert(kBlocks * (kBytes + kReservedBytes) <= kProcessorBytes, "a multiprocessor's shared memory");
};

}  // namespace adtrain::kernels::backward_pass
