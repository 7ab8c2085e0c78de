#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

#include "kernels/BlockShape.h"

/// Attention by itself, between projections that others make: heads of 8, 16, 32 or 64, widths that are
/// multiples of 32. For blocks too wide to be one kernel. All arrays are in the GPU's memory and borrowed;
/// calls return at once and throw EnvironmentError where a kernel cannot be launched.
namespace adtrain::kernels {

/// How many columns of heads a thread block has in hand.
constexpr int kGroupColumns = 32;

/// Whether keys and values do not fit into shared memory and are streamed block by block: see
/// StreamingAttention.h.
constexpr bool is_streaming_attention(int64_t tokens, int64_t head_size) {
  return tokens > kMostTokens || head_size > 32;
}

/// Rows of heads in a matrix that may hold other things beside them. A head's elements are neighbours and
/// begin at multiples of 16 bytes.
template <class Value>
struct HeadMatrix {
  Value* data;          ///< the first sequence's first row, its first head
  int64_t of_sequence;  ///< elements from one sequence to the next
  int of_row, of_head;  ///< and from one row, and one head

  __host__ __device__ Value* at(int sequence, int row, int head) const {
    return data + of_sequence * sequence + int64_t{of_row} * row + of_head * head;
  }
};

/// What comes out of attention, and its gradient.
template <int HeadSize, class Value>
__host__ __device__ HeadMatrix<Value> rows_of_heads(Value* data, const BlockShape& shape) {
  return {data, int64_t{shape.rows} * shape.width, shape.width, HeadSize};
}

/// Sequences, streams, rows and padding are those of BlockShape; the output of a warp tile of 16 rows that
/// are all padding is 0. Heads of 32 and 64 may have any number of tokens; where is_streaming(), all is
/// causal, of one stream, unpadded, and nothing is rotated.
struct MultiheadAttention {
  using Heads = HeadMatrix<const __nv_bfloat16>;

  BlockShape shape;
  Heads queries;       ///< of the last `rows` tokens alone
  Heads keys, values;  ///< of all tokens + queries
  /// As in PreNormAttention: queries and keys are rotated by them; null for none.
  const float *cosines, *sines;
  const uint32_t* keep;             ///< the dropout mask, as in DropoutMasks; null for none
  float scale;                      ///< of what is kept; 1 for none
  __nv_bfloat16* attention_output;  ///< (S · R, D): forward writes
  /// As in BlockActivations (S, H, R): forward writes them, but for warp tiles that are nothing but padding,
  /// of which the backward pass reads none.
  float* lse;

  /// Whether streaming_attention() takes it, whose restrictions hold then.
  bool is_streaming() const { return is_streaming_attention(shape.tokens, shape.width / shape.heads); }
};

/// Gradients, the last three written; as their matrices lie.
struct MultiheadAttentionGradients {
  const __nv_bfloat16* attention_output;  ///< (S · R, D)
  HeadMatrix<__nv_bfloat16> queries, keys, values;
  /// How many tokens in front have no query: their rows of the gradient of queries are set to 0.
  int rows_before;
  /// (S, H, R), memory for this call alone: where is_streaming().
  float* minus_deltas;
  __nv_bfloat16* dscores;  ///< likewise; as many as streaming_attention_dscores() says
};

void multihead_attention(const MultiheadAttention& attention, cudaStream_t stream);

/// Deterministic.
void multihead_attention_backward(const MultiheadAttention& attention,
                                  const MultiheadAttentionGradients& gradients, cudaStream_t stream);

}  // namespace adtrain::kernels
