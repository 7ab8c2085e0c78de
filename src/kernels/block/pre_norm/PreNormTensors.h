#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

#include "kernels/block/BlockTensors.h"

/// What the kernels of a fused pre-norm block share; all arrays in the GPU's memory, dense and row-major,
/// borrowed.
///
/// The block (see PreNormBlock, the definition of what is right), D = width, F = 4 D, H = heads, with
/// norm(x) = x · weight / √(mean(x²) + 1e-5):
///
///     n1 = norm1(drop(x));    x1 = x + out_proj(attention(rotated(in_proj(n1))))
///     n2 = norm2(drop(x1));   y = x1 + w3(silu(w1 n2) · w2 n2)
///
/// Sequences, streams, `tokens`, `queries` and `rows` are those of BlockShape: x and n1 have tokens + queries
/// rows a sequence, all that comes after the attention the last `rows` of these.
namespace adtrain::kernels {

/// The attention half, as its forward and its backward pass see it.
struct PreNormAttention {
  const __nv_bfloat16* normed;  ///< n1 (S · (tokens + queries), D)
  /// (3 D, D), (3 D). Rows stand by heads: queries, keys and values of head 0, then those of head 1 …
  const __nv_bfloat16 *in_proj_weight, *in_proj_bias;
  const __nv_bfloat16 *out_proj_weight, *out_proj_bias;  ///< (D, D), (D)
  /// (tokens, head size / 2): feature i < head size / 2 of a query or key at token t is rotated with feature
  /// i + head size / 2 as one complex number, by cosine and sine (t, i). Query j stands where token j does.
  /// 16-byte aligned.
  const float *cosines, *sines;
  const uint32_t* keep;  ///< the dropout mask of the attention's weights, as in DropoutMasks; null for none
  float scale;           ///< of what is kept
  __nv_bfloat16* attention_output;  ///< the attention's output, before out_proj (S · R, D): forward writes
  float* lse;                       ///< as in BlockActivations (S, H, R): forward writes
};

/// Sums over all rows for the parameters of the attention half, in elements: as in AttentionGradients. Those
/// of in_proj stand by heads, as its rows do.
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

/// Sums over all rows for them, in elements.
struct SwigluGradients {
  int w1, w2, w3, total;
  static constexpr SwigluGradients of(int width) {
    const int matrix = 4 * width * width;
    return {0, matrix, 2 * matrix, 3 * matrix};
  }
};

}  // namespace adtrain::kernels
