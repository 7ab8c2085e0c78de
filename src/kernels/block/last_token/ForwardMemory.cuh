#pragma once

#include "kernels/block/BlockTensors.h"
#include "kernels/block/last_token/Group.cuh"
#include "kernels/block/last_token/SplitVector.cuh"
#include "kernels/block/last_token/VectorMlp.cuh"
#include "kernels/primitives/Tile.cuh"

/// A thread block's shared memory in the forward pass. The names are those of LastTokenBlock.cuh's formulas.
namespace adtrain::kernels::last_token {

/// The vectors of a block's parameters, as they are used.
template <int Width>
struct Vectors {
  Bf16 in_proj_bias[3 * Width], out_proj_bias[Width], linear1_bias[4 * Width], linear2_bias[Width];
  Bf16 norm1_weight[Width], norm1_bias[Width], norm2_weight[Width], norm2_bias[Width];
};

/// The data of a group for its sequence, 38 KiB at D = 64 with 8 heads.
template <int Width, int Heads>
struct alignas(128) ForwardSequence {
  static constexpr int kColumnHeads = (Heads + 3) / 4 * 4;  ///< heads for which there are columns

  union {
    Bf16 x[kMostTokens * Width];
    SumsOfWarps<Width, Heads> sums_of_warps;  ///< of a x, split, once x has been read
  };
  HeadColumns<Width, Heads> asked[1], weighted;  ///< u, and Σ a x; split
  SplitVector<Width> query, attention_output;
  float x_last[Width], x1[Width];
  float sum[Width];  ///< input of a norm
  /// Of each warp: its greatest scores, sums of weights relative to them, sums of kept weights.
  float most[kGroupWarps][kColumnHeads], totals[kGroupWarps][kColumnHeads], kept[kGroupWarps][kColumnHeads];
  float kept_share[kColumnHeads], constants[Heads];  ///< Σ a; a constant of the head's scores
};

template <int Width, int HeadSize>
struct ForwardMemory {
  Bf16 in_proj[3 * Width * Width], out_proj[Width * Width];
  Vectors<Width> vectors;
  ForwardSequence<Width, Width / HeadSize> sequences[kGroups];
  MlpMemory<Width> mlp;
};
static_assert(sizeof(ForwardMemory<64, 8>) <= 227 * 1024, "a thread block's shared memory");

}  // namespace adtrain::kernels::last_token
