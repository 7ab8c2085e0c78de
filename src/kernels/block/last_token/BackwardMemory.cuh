#pragma once

#include "kernels/block/BlockTensors.h"
#include "kernels/block/last_token/Vectors.cuh"

/// A thread block's shared memory in the backward pass. The names are those of LastTokenBackward.cu's
/// formulas.
namespace adtrain::kernels::last_token {

/// Shared memory for the whole launch, 36.5 KiB at D = 64.
template <int Width>
struct Weights {
  Bf16 in_proj[3 * Width * kStride<Width>], out_proj[Width * kStride<Width>];
  Bf16 in_proj_bias[3 * Width], norm1_weight[Width];

  /// All threads of the block call this together.
  __device__ void start_copies(const BlockWeights& from) {
    start_copy_rows<Width>(in_proj, from.in_proj_weight, 3 * Width, threadIdx.x, kBlockThreads);
    start_copy_rows<Width>(out_proj, from.out_proj_weight, Width, threadIdx.x, kBlockThreads);
    for (int i = threadIdx.x; i < 3 * Width; i += kBlockThreads) in_proj_bias[i] = from.in_proj_bias[i];
    for (int i = threadIdx.x; i < Width; i += kBlockThreads) norm1_weight[i] = from.norm1_weight[i];
  }
};

/// The four products: of queries, keys, values and of out_proj.
constexpr int kProducts = 4;

/// The data of a group for its sequence, 70.1 KiB at D = 64 with 8 heads.
template <int Width, int Heads>
struct alignas(16) Sequence {
  static constexpr int kSums = 2 * Heads;

  Bf16 x[kMostTokens * kStride<Width>];  ///< dx at the end
  float weights[kMostTokens][kSums];     ///< a, then ds
  Pool<Width, kSums> pool;
  float vectors[kSums][Width];  ///< first v, then u
  float pooled[kSums][Width];   ///< first Σ a x, then d
  /// The products' left factors: dq, q / √d, do, df. The right factors are x_last, d, Σ a x, o.
  float left[kProducts][Width];
  float x_last[Width], attention_output[Width];
  float du[Width];
  float kept_of_warps[kWarps][Heads];                        ///< Σ a
  float of_scores[Heads], of_weights[Heads], deltas[Heads];  ///< bias terms of s and da; do_h · o_h
};

template <int Width, int HeadSize>
struct Memory {
  Weights<Width> weights;
  Sequence<Width, Width / HeadSize> sequences[kGroups];
  float norm_sums[kGroups][2][Width];  ///< used at the end of the launch
};
static_assert(sizeof(Memory<64, 8>) <= 227 * 1024, "a thread block's shared memory");

}  // namespace adtrain::kernels::last_token
