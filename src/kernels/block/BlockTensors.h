#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

#include "kernels/BlockShape.h"

/// What the kernels of a fused post-norm block share: its sizes and its arrays, all in the GPU's memory,
/// dense and row-major, borrowed.
///
/// The block (see PostNormBlock, the definition of what is right), D = width, F = 4 D, H = heads:
///
///     sum1 = x + drop(out_proj(attention(in_proj(x))));      x1 = norm1(sum1)
///     y = norm2(x1 + drop(linear2(drop(gelu(linear1(x1))))))
///
/// A sequence has `tokens` tokens, each of which reads itself and, where causal, the ones before it. With a
/// second stream `queries` follow: query j stands where token t = tokens − queries + j stands and reads the
/// tokens before that one, and itself; nobody else reads it (see TokenStreams). Of these tokens + queries
/// rows of x the last `rows` come out: the last block of a network whose loss reads only its last token has
/// rows = 1. Row r of sequence s, r = 0 … rows − 1, is its row tokens + queries − rows + r of x, and row s ·
/// rows + r of the arrays below.
///
/// Of whole blocks post-norm alone: tokens before the first one of their sequence are padding, which no other
/// token reads. What comes out for them is finite and of no meaning; the forward pass keeps no
/// `attention_output` and `lse` of some. The gradient that comes in for them must be 0, and so is the one
/// that goes out.
namespace adtrain::kernels {

/// Weights (out, in). The three of the input projection stand one after another: queries, keys, values.
struct BlockWeights {
  const __nv_bfloat16 *in_proj_weight, *in_proj_bias;    ///< (3 D, D), (3 D)
  const __nv_bfloat16 *out_proj_weight, *out_proj_bias;  ///< (D, D), (D)
  const __nv_bfloat16 *norm1_weight, *norm1_bias;        ///< (D)
  const __nv_bfloat16 *linear1_weight, *linear1_bias;    ///< (F, D), (F)
  const __nv_bfloat16 *linear2_weight, *linear2_bias;    ///< (D, F), (D)
  const __nv_bfloat16 *norm2_weight, *norm2_bias;        ///< (D)
};

/// Dropout: bit c % 32 of word c / 32 of a row is set where its column c is kept; what is kept is multiplied
/// with the scale, 1 / the probability of keeping. Words of a rate of 0 are null.
struct DropoutMasks {
  /// Of the attention's weights: (S, H, words, R) with words = ⌈tokens / 32⌉, so that a bit is a key and
  /// neighbouring words are neighbouring queries. Query j reads itself by the bit of the key in whose place
  /// it stands. See AttentionRows: of causal attention, words of keys after the row's own place are not
  /// there.
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
  __nv_bfloat16* attention_output;  ///< the attention's output, before out_proj (S · R, D)
  /// log2 Σ exp2(score · log2 e) of each row over the keys that it reads, scores scaled, before dropout: (S,
  /// H, R).
  float* lse;
  __nv_bfloat16* normed1;  ///< (sum1 − mean) / deviation, before norm1's weight and bias (S · R, D)
  float* inverse1;         ///< 1 / √(variance + 1e-5) of it (S · R)
  __nv_bfloat16* normed2;  ///< likewise of norm2
  float* inverse2;
};

/// Sums over all rows for the parameters of the block's two sublayers, in elements from the beginning of the
/// half. They lie in the order of the parameters, each from a multiple of 64 on (as FlatLayout lays them).
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
