#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

#include "model/kernels/fused/BlockTensors.h"

/// Attention by itself, between projections that others make: heads of 8, 16, 32 or 64, widths that are
/// multiples of 32. For blocks too wide to be one kernel. All arrays are in the GPU's memory and borrowed;
/// calls return at once and throw EnvironmentError where a kernel cannot be launched.
namespace adtrain::kernels {

/// How many columns of heads a thread block has in hand.
constexpr int kGroupColumns = 32;

/// Whether keys and values are more than shared memory has room for, and pass by: see LongAttention.h.
constexpr bool is_long_attention(int64_t tokens, int64_t head_size) {
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

/// Sequences, streams, rows and padding are those of BlockShape: what strips of 16 rows read that are nothing
/// but padding is 0. Heads of 32 and 64 may have any number of tokens; where is_long(), all is causal, of one
/// stream, unpadded, and nothing turns.
struct HeadAttention {
  using Heads = HeadMatrix<const __nv_bfloat16>;

  BlockShape shape;
  Heads queries;       ///< of the last `rows` tokens alone
  Heads keys, values;  ///< of all tokens + queries
  /// As in PreNormAttention: queries and keys turn by them; null for none.
  const float *cosines, *sines;
  const uint32_t* keep;  ///< dropout's bits, as in KeepBits; null for none
  float scale;           ///< of what is kept; 1 for none
  __nv_bfloat16* read;   ///< (S · R, D): forward writes
  /// As in BlockActivations (S, H, R): forward writes them, but for strips that are nothing but padding, of
  /// which the backward pass reads none.
  float* log_sums;

  /// Whether long_attention() takes it, whose restrictions hold then.
  bool is_long() const { return is_long_attention(shape.tokens, shape.width / shape.heads); }
};

/// Gradients, the last three written; as their matrices lie.
struct HeadAttentionGradients {
  const __nv_bfloat16* read;  ///< (S · R, D)
  HeadMatrix<__nv_bfloat16> queries, keys, values;
  /// Rows before those of `queries`, tokens that have none: they get zeros.
  int rows_before;
  /// (S, H, R), for the call alone: where the attention is long.
  float* minus_deltas;
  __nv_bfloat16* dscores;  ///< likewise; as many as long_attention_dscores() says
};

void head_attention(const HeadAttention& attention, cudaStream_t stream);

/// Deterministic.
void head_attention_backward(const HeadAttention& attention, const HeadAttentionGradients& gradients,
                             cudaStream_t stream);

}  // namespace adtrain::kernels
