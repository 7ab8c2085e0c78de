#pragma once

#include <cstdint>

#include <driver_types.h>

#include "kernels/primitives/MatrixRows.h"

/// Attention where only the last token of each sequence has a query, which reads all tokens: between the
/// scores and the weights of their average, and back. A head of a sequence is one thread block.
namespace adtrain::kernels {

struct LastQuery {
  int sequences, heads, tokens, head_size;
  float score_scale;     ///< multiplies the scores
  const uint32_t* kept;  ///< (sequences, heads, ⌈tokens / 32⌉): a bit a token; null: all weights are kept
  float kept_scale;      ///< multiplies the kept weights
  ShortType type;        ///< of all 16-bit arrays
};

/// scores (sequences, heads, tokens) -> the same memory: their softmax. `weights`: the same with dropout, (…,
/// heads, tokens) with `sequence_stride` elements from one sequence to the next. `sums` (sequences, heads):
/// of those weights. Returns at once; throws EnvironmentError where the kernel cannot be launched.
void last_query_weights(const LastQuery& call, float* scores, void* weights, int64_t sequence_stride,
                        float* sums, cudaStream_t stream);

/// The gradients of the scores, laid out as the weights are. `probabilities`: the softmax. `d_weights`
/// (sequences, heads, tokens): the gradients of the weights but for the values' bias, (heads, head_size),
/// which adds its product with `d_output` (sequences, heads, head_size) to each. Returns and throws as above.
void last_query_gradients(const LastQuery& call, const float* probabilities, const float* d_weights,
                          const void* d_output, const void* value_bias, void* d_scores,
                          int64_t sequence_stride, cudaStream_t stream);

}  // namespace adtrain::kernels
