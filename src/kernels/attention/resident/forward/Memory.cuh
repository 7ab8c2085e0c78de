#pragma once

#include "kernels/BlockShape.h"
#include "kernels/attention/resident/forward/Features.cuh"
#include "kernels/attention/resident/forward/WarpTiles.cuh"
#include "kernels/primitives/FeatureOrder.cuh"
#include "kernels/primitives/Tile.cuh"

/// Shared memory. D = width, T = 256, the most tokens (constant addresses are worth more than the space), G =
/// 2 groups. The total is 226.9 of 227 KiB where D = 64. A pre-norm block has no linear1, linear2 and norms
/// here and takes 161.1 KiB.
///
///     in_proj  (3 D, D)  6 D² bytes              whole launch; columns in feature order
///     out_proj (D, D)    2 D² bytes              whole launch; rows in feature order
///     linear1  (4 D, D)  8 D² bytes              whole launch; columns in feature order
///     linear2  (D, 4 D)  8 D² bytes              whole launch; rows in feature order; as tiles (D, 64), one
///                                                below the other
///     keys     (T, D)    2 D T bytes, G times    a sequence's x, once the previous one has been read; then
///                                                its keys, from phase A until the last query has read them
///     values   (T, D)    2 D T bytes, G times    from phase A until the last query has read them
///     biases   (9 D)     36 D bytes, fp32        whole launch; pre-norm: (4 D)
///     norms    (4 D)     8 D bytes               whole launch: weights and biases of the norms
///     longest  (2, 8)    64 bytes, G times       the greatest |key|² of each head: of this sequence, from A
///                                                until its last query has read; zeros for the next sequence
///
/// A is the phase that projects keys and values; see block/forward/Kernel.cuh. The tiles come first: at width
/// 64 each begins at a multiple of 1024 bytes, as products of warpgroups need it.
namespace adtrain::kernels::forward_pass {

constexpr int kMostHeads = 8;

/// The shared memory as the warps of one group address it: that of attention, and the block's own.
template <class Block, int Width>
struct Memory : Block::template OwnMemory<Width> {
  Tile<Width> in_proj, out_proj;
  Tile<Width> keys, values;
  float *in_proj_bias, *out_proj_bias;
  float* longest;  ///< (2, kMostHeads)

  static constexpr int bytes() { return kMatrices + kVectors + kGroups * (kLongest + 2 * kTokens); }

  __device__ Memory(char* start, int group)
      : Own(start + kAttentionMatrices, start + kMatrices + kGroups * 2 * kTokens + kAttentionVectors) {
    FreeMemory matrices = {start}, tokens = {start + kMatrices + group * 2 * kTokens};
    FreeMemory vectors = {start + kMatrices + kGroups * 2 * kTokens};
    in_proj = {matrices.take<Bf16>(3 * Width * Width)};
    out_proj = {matrices.take<Bf16>(Width * Width)};
    keys = {tokens.take<Bf16>(kMostTokens * Width)};
    values = {tokens.take<Bf16>(kMostTokens * Width)};
    in_proj_bias = vectors.take<float>(3 * Width);
    out_proj_bias = vectors.take<float>(Width);
    vectors.free += Own::kVectors + group * kLongest;
    longest = vectors.take<float>(2 * kMostHeads);
  }

 private:
  using Own = typename Block::template OwnMemory<Width>;
  static constexpr int kAttentionMatrices = Tile<Width>::bytes(4 * Width);
  static constexpr int kAttentionVectors = 4 * Width * static_cast<int>(sizeof(float));
  static constexpr int kMatrices = kAttentionMatrices + Own::kMatrices;
  static constexpr int kVectors = kAttentionVectors + Own::kVectors;
  static constexpr int kTokens = Tile<Width>::bytes(kMostTokens);
  static constexpr int kLongest = 2 * kMostHeads * static_cast<int>(sizeof(float));
};

}  // namespace adtrain::kernels::forward_pass
