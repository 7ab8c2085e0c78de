#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

#include "kernels/BlockShape.h"

/// What the kernels of a fused post-norm block share: its sizes, and its arrays, which are all in the GPU's
/// memory, dense and row-major, borrowed.
///
/// The block, with D = width, F = 4 D, H = heads (PostNormBlock defines the correct results):
///
///     sum1 = x + drop(out_proj(attention(in_proj(x))));      x1 = norm1(sum1)
///     y = norm2(x1 + drop(linear2(drop(gelu(linear1(x1))))))
///
/// A sequence has `tokens` tokens. Each reads itself and, where causal, the tokens before it. With a second
/// stream, `queries` queries follow. Query j takes the position of token t = tokens − queries + j. It reads
/// itself and the tokens before that position, and no other token reads it (see TokenStreams). Of these
/// tokens + queries rows of x, the block outputs the last `rows`: the last block of a network whose loss
/// reads only its last token has rows = 1. Output row r of sequence s, r = 0 … rows − 1, belongs to the
/// sequence's row tokens + queries − rows + r of x. It is row s · rows + r of the arrays below.
///
/// Whole-block kernels support padding in post-norm blocks only: tokens before a sequence's first one are
/// padding, which no other token reads. Their outputs are finite but meaningless, and for some of them the
/// forward pass does not write `attention_output` and `lse`. Their incoming gradient must be 0, and their
/// outgoing gradient is 0.
namespace adtrain::kernels {

/// Weights (out, in). The input projection's three parts follow one another: queries, keys, values.
struct BlockWeights {
  const __nv_bfloat16 *in_proj_weight, *in_proj_bias;    ///< (3 D, D), (3 D)
  const __nv_bfloat16 *out_proj_weight, *out_proj_bias;  ///< (D, D), (D)
  const __nv_bfloat16 *norm1_weight, *norm1_bias;        ///< (D)
  const __nv_bfloat16 *linear1_weight, *linear1_bias;    ///< (F, D), (F)
  const __nv_bfloat16 *linear2_weight, *linear2_bias;    ///< (D, F), (D)
  const __nv_bfloat16 *norm2_weight, *norm2_bias;        ///< (D)
};

/// Dropout masks: bit c % 32 of word c / 32 of a row is set where its column c is kept. Kept elements are
/// multiplied by the scale, 1 / the probability of keeping. For a rate of 0 the words are null.
struct DropoutMasks {
  /// For the attention weights: (S, H, words, R) with words = ⌈tokens / 32⌉. Each bit is for a key, and
  /// neighbouring words are for neighbouring queries. For itself, query j uses the bit of the key whose
  /// position it takes. With causal attention, words of keys after the row's own position are not filled; see
  /// AttentionRows.
  const uint32_t* attention;
  const uint32_t* projection;  ///< of out_proj's output: (S · R, D / 32)
  const uint32_t* inner;       ///< of gelu's output: (S · R, F / 32)
  const uint32_t* output;      ///< of linear2's output: (S · R, D / 32)
  float attention_scale;
  float hidden_scale;
};

/// What the forward pass keeps for the backward pass.
struct BlockActivations {
  const __nv_bfloat16* x;           ///< the block's input (S · (tokens + queries), D)
  __nv_bfloat16* attention_output;  ///< before out_proj (S · R, D)
  /// log2 Σ exp2(score · log2 e) of each row over the keys that it reads, before dropout: (S, H, R). The
  /// scores include the factor 1 / √head size.
  float* lse;
  __nv_bfloat16* normed1;  ///< (sum1 − mean) / deviation, before norm1's weight and bias (S · R, D)
  float* inverse1;         ///< 1 / √(variance + 1e-5) of sum1 (S · R)
  __nv_bfloat16* normed2;  ///< likewise for norm2
  float* inverse2;
};

/// The offsets, in elements, of a sublayer's parameters in its partial sums. They are in the order of the
/// parameters, each at a multiple of 64 (FlatLayout).
struct AttentionGradients {
  int in_proj_weight, in_proj_bias, out_proj_weight, out_proj_bias, norm1_weight, norm1_bias, total;
  static constexpr AttentionGradients of(int width) {
    const int vector = (width + 63) / 64 * 64, in_bias = (3 * width + 63) / 64 * 64;
    const int in_weight = 3 * width * width, out_weight = width * width;
    return {0,
            in_weight,
            in_weight + in_bias,
            in_weight + in_bias + out_weight,
            in_weight + in_bias + out_weight + vector,
            in_weight + in_bias + out_weight + 2 * vector,
            in_weight + in_bias + out_weight + 3 * vector};
  }
};
struct MlpGradients {
  int linear1_weight, linear1_bias, linear2_weight, linear2_bias, norm2_weight, norm2_bias, total;
  static constexpr MlpGradients of(int width) {
    const int vector = (width + 63) / 64 * 64, matrix = 4 * width * width, inner = 4 * width;
    return {0,
            matrix,
            matrix + inner,
            2 * matrix + inner,
            2 * matrix + inner + vector,
            2 * matrix + inner + 2 * vector,
            2 * matrix + inner + 3 * vector};
  }
};

}  // namespace adtrain::kernels
