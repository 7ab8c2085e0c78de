#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

#include "kernels/block/BlockTensors.h"

/// What the kernels of a fused pre-norm block share. All arrays are in the GPU's memory, dense and row-major,
/// borrowed.
///
/// The block, with D = width, F = 4 D, H = heads and norm(x) = x · weight / √(mean(x²) + 1e-5) (PreNormBlock
/// defines the correct results):
///
///     n1 = norm1(drop(x));    x1 = x + out_proj(attention(rotated(in_proj(n1))))
///     n2 = norm2(drop(x1));   y = x1 + w3(silu(w1 n2) · w2 n2)
///
/// Sequences, streams, `tokens`, `queries` and `rows` are those of BlockShape. x and n1 have tokens + queries
/// rows per sequence. Everything after attention has the last `rows` of these.
namespace adtrain::kernels {

/// The attention sublayer, for its forward and its backward pass.
struct PreNormAttention {
  const __nv_bfloat16* normed;  ///< n1 (S · (tokens + queries), D)
  /// (3 D, D), (3 D). Rows are ordered by heads: queries, keys and values of head 0, then those of head 1,
  /// and so on.
  const __nv_bfloat16 *in_proj_weight, *in_proj_bias;
  const __nv_bfloat16 *out_proj_weight, *out_proj_bias;  ///< (D, D), (D)
  /// (tokens, head size / 2): feature i < head size / 2 of a query or key at token t is rotated with feature
  /// i + head size / 2 as one complex number, by cosine and sine (t, i). A query of a second stream is
  /// rotated as the token whose position it takes. 16-byte aligned.
  const float *cosines, *sines;
  const uint32_t* keep;             ///< dropout mask of attention weights, as in DropoutMasks; null for none
  float scale;                      ///< multiplies the kept weights
  __nv_bfloat16* attention_output;  ///< before out_proj (S · R, D); the forward pass writes it
  float* lse;                       ///< as in BlockActivations (S, H, R); the forward pass writes it
};

/// The offsets, in elements, of the attention sublayer's parameters in its partial sums, as in
/// AttentionGradients. Those of in_proj are ordered by heads, as its rows are.
struct PreNormAttentionGradients {
  int in_proj_weight, in_proj_bias, out_proj_weight, out_proj_bias, total;
  static constexpr PreNormAttentionGradients of(int width) {
    const AttentionGradients all = AttentionGradients::of(width);
    return {all.in_proj_weight, all.in_proj_bias, all.out_proj_weight, all.out_proj_bias, all.norm1_weight};
  }
};

/// w1 and w2 (F, D), w3 (D, F).
struct SwigluWeights {
  const __nv_bfloat16 *w1, *w2, *w3;
};

/// The offsets, in elements, of SwigluWeights' gradients in their partial sums.
struct SwigluGradients {
  int w1, w2, w3, total;
  static constexpr SwigluGradients of(int width) {
    const int matrix = 4 * width * width;
    return {0, matrix, 2 * matrix, 3 * matrix};
  }
};

}  // namespace adtrain::kernels
