#pragma once

#include <algorithm>
#include <cstdint>

#include "model/kernels/fused/PreNormTensors.h"
#include "model/kernels/gpu/Tile.cuh"

/// What a launch works on, and how its thread blocks are built.
namespace adtrain::kernels::backward_pass {

constexpr int kMostStrips = kMostTokens / kStrip;
constexpr int kSharedBytes = 227 * 1024;     ///< of a thread block
constexpr int kProcessorBytes = 228 * 1024;  ///< of a multiprocessor
constexpr int kReservedBytes = 1024;         ///< a thread block's, beside its own

/// What a launch works on.
struct Job {
  BlockShape shape;
  BlockWeights weights;
  KeepBits keep;
  BlockActivations activations;
  const Bf16* dx1;
  Bf16* dx;
  float* parts;
  Bf16* carried;
};

/// Of a pre-norm block: `activations.x` is n1, dx its gradient. What only a post-norm block has is null.
struct RotatedJob : Job {
  const float *cosines, *sines;
};

/// The two blocks, as far as their attention halves differ.
template <bool Padded>
struct PostNorm {
  using Job = backward_pass::Job;
  using Gradients = AttentionGradients;
  static constexpr bool kNormBehind = true;  ///< behind out_proj: dropout, the residual sum and norm1
  static constexpr bool kRotated = false;    ///< queries and keys turn by their places
  static constexpr bool kByHeads = false;    ///< in_proj's rows stand by heads, else by thirds
  static constexpr bool kPadded = Padded;    ///< whether sequences may begin with padding
};
struct PreNorm {
  using Job = RotatedJob;
  using Gradients = PreNormAttentionGradients;
  static constexpr bool kNormBehind = false;
  static constexpr bool kRotated = true;
  static constexpr bool kByHeads = true;
  static constexpr bool kPadded = false;
};

/// A kernel's template arguments.
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
  /// The other way: third · Width + column, where shared memory has in_proj's row `row`.
  __host__ __device__ static constexpr int by_thirds(int row) {
    if (!Block::kByHeads) return row;
    return row / HeadSize % 3 * Width + row / (3 * HeadSize) * HeadSize + row % HeadSize;
  }
};

/// A stream of a sequence, which a thread block works on at a time. With two of them the queries come first.
struct Round {
  int sequence;
  bool of_queries;
  int rows;          ///< of the stream that come out, its last ones
  int first_row;     ///< of these, among the sequence's
  int skipped;       ///< tokens that do not come out
  int first_output;  ///< the first strip with tokens that do, and not padding alone
  int first_token;   ///< tokens before it are padding

  template <bool Streams, bool Padded>
  __device__ static Round of(const BlockShape& shape, int sequence, bool of_queries) {
    const int of_second = Streams ? min(shape.rows, shape.queries) : 0;
    const int rows = of_queries ? of_second : shape.rows - of_second, skipped = shape.tokens - rows;
    int first_output = (Streams && rows == 0 ? skipped + kStrip - 1 : skipped) / kStrip, first_token = 0;
    if (Padded && shape.first != nullptr && sequence < shape.sequences) {
      first_token = __ldg(shape.first + sequence);
      first_output = max(first_output, first_token / kStrip);
    }
    return {sequence, of_queries,   rows,       of_queries ? shape.rows - of_second : 0,
            skipped,  first_output, first_token};
  }
  /// The row that comes out for a token, or the nearest one.
  __device__ int nearest_row(int token) const { return min(max(token - skipped, 0), rows - 1); }
  /// Its first row among all sequences'.
  __device__ int64_t before(const BlockShape& shape) const {
    return int64_t{sequence} * shape.rows + first_row;
  }
};

/// What a thread block carries from a sequence's queries to its context: gradients of keys and of values.
__host__ __device__ constexpr int carried_elements(int width) {
  return 2 * kMostTokens * width;
}

/// How a thread block is built; offsets in its shared memory in bytes.
template <int Width, int HeadSize>
struct Plan {
  static constexpr int kHeads = Width / HeadSize;
  static constexpr int kWarps = Width / 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kBlocks = 64 / Width;  ///< a multiprocessor's
  static constexpr int kWarpStrips = kMostStrips / kWarps;
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
  static constexpr int kBytes = kVectors + 4 * Width * static_cast<int>(sizeof(Bf16));

  static_assert(kInProjStays || kScoreBytes <= kInProjBytes, "the place of in_proj is large enough");
  static_assert(kBytes <= kSharedBytes, "a thread block's shared memory");
  static_assert(kBlocks * (kBytes + kReservedBytes) <= kProcessorBytes, "a multiprocessor's shared memory");
};

}  // namespace adtrain::kernels::backward_pass
