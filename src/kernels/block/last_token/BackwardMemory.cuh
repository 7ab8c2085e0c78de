#pragma once

#include "kernels/block/BlockTensors.h"
#include "kernels/block/last_token/Group.cuh"
#include "kernels/block/last_token/OuterProducts.cuh"
#include "kernels/block/last_token/SplitVector.cuh"
#include "kernels/primitives/Tile.cuh"

/// A thread block's shared memory in the backward pass. The names are those of LastTokenBackward.cu's
/// formulas.
namespace adtrain::kernels::last_token {

/// Shared memory for the whole launch, 32.4 KiB at D = 64.
template <int Width>
struct alignas(128) BackwardWeights {
  Bf16 in_proj[3 * Width * Width], out_proj[Width * Width];
  Bf16 in_proj_bias[3 * Width];

  /// All threads of the block call this together.
  __device__ void start_copies(const BlockWeights& from) {
    start_copy(Tile<Width>{in_proj}, from.in_proj_weight, 3 * Width, threadIdx.x, kBlockThreads);
    start_copy(Tile<Width>{out_proj}, from.out_proj_weight, Width, threadIdx.x, kBlockThreads);
    for (int i = threadIdx.x; i < 3 * Width; i += kBlockThreads) {
      in_proj_bias[i] = from.in_proj_bias[i];
    }
  }
  /// The weights of queries, keys or values (0, 1, 2).
  __device__ Tile<Width> of(int third) { return {in_proj + third * Width * Width}; }
  __device__ float bias(int third, int column) const {
    return __bfloat162float(in_proj_bias[third * Width + column]);
  }
};

/// The data of a group for its sequence, 40 KiB at D = 64 with 8 heads.
template <int Width, int Heads>
struct alignas(128) BackwardSequence {
  static constexpr int kColumnHeads = (Heads + 3) / 4 * 4;  ///< heads for which there are columns

  union {
    Bf16 x[kMostTokens * Width];
    SumsOfWarps<Width, Heads> sums_of_warps;  ///< of a x and ds x, once x has been read
  };
  HeadColumns<Width, Heads> vectors[2];                  ///< v and u, rounded; then what rounding took off
  HeadColumns<Width, Heads> d;                           ///< split
  SplitVector<Width> query, d_attention_output, df, dq;  ///< the query is divided by √d
  float du[Width];
  float kept_of_warps[kGroupWarps][kColumnHeads];  ///< Σ a
  /// For each head: the constant of its scores in powers of 2, less lse; that of da; do · o.
  float of_exponents[Heads], of_weights[Heads], deltas[Heads];
  float2 last_weights[kColumnHeads];  ///< a and ds of the last token
};

template <int Width, int HeadSize>
struct BackwardMemory {
  BackwardWeights<Width> weights;
  BackwardSequence<Width, Width / HeadSize> sequences[kGroups];
  Factors<Width, Width / HeadSize> factors;
  float norm_sums[kGroups][2][Width];  ///< used at the end of the launch
};
static_assert(sizeof(BackwardMemory<64, 8>) <= 227 * 1024, "a thread block's shared memory");

}  // namespace adtrain::kernels::last_token
