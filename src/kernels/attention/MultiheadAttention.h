#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

#include "kernels/BlockShape.h"
#include "kernels/primitives/MatrixRows.h"

/// Attention without its projections, for blocks too wide to be one kernel. Supports heads of 8, 16, 32 or 64
/// and widths that are multiples of 32. All arrays are in the GPU's memory and borrowed. Calls return at once
/// and throw EnvironmentError where a kernel cannot be launched.
namespace adtrain::kernels {

/// How many columns of heads a thread block works on.
constexpr int kGroupColumns = 32;

/// The smallest heads whose keys and values can be streamed.
constexpr int64_t kSmallestStreamingHead = 16;

/// Whether keys and values are streamed block by block (StreamingAttention.h), and not resident in shared
/// memory (resident/ResidentAttention.h): where they do not fit, and in fp16, which the resident kernels do
/// not take. Heads of 8 have the resident kernels alone.
constexpr bool is_streaming_attention(int64_t tokens, int64_t head_size, ShortType type) {
  constexpr int64_t kLargestResidentHead = 32;
  return tokens > kMostTokens || head_size > kLargestResidentHead ||
         (type == ShortType::kHalf && head_size >= kSmallestStreamingHead);
}

/// Rows of heads in a matrix that may hold other data between them. A head's elements are contiguous and
/// aligned to 16 bytes.
template <class Value>
struct HeadMatrix {
  Value* data;          ///< the first head of the first sequence's first row
  int64_t of_sequence;  ///< stride in elements from one sequence to the next
  int of_row, of_head;  ///< strides in elements from one row, and from one head, to the next

  __host__ __device__ Value* at(int sequence, int row, int head) const {
    return data + of_sequence * sequence + int64_t{of_row} * row + of_head * head;
  }
};

/// The layout of the attention output and of its gradient.
template <int HeadSize, class Value>
__host__ __device__ HeadMatrix<Value> rows_of_heads(Value* data, const BlockShape& shape) {
  return {data, int64_t{shape.rows} * shape.width, shape.width, HeadSize};
}

/// ALiBi (Press et al., 2021, arXiv:2108.12409): the score of a key some positions before the query is less
/// by 2^(−8(h+1)/H) for each of them, in head h = 0 … H−1. So far keys weigh nothing: a query reads no keys
/// whose weights are certainly less than 2^-26 of the sum of its weights, together less than bf16 tells
/// apart.
struct AlibiReach {
  float* longest_keys;  ///< (S, H): scratch memory of the forward pass; null for no ALiBi
  /// (S, H, blocks of kReachRows tokens): the first key that the block's queries read. The forward pass
  /// writes it for blocks that have queries, the backward pass reads it. Of two streams the same once more
  /// follows, for the second one.
  int* first_keys;

  static constexpr int kReachRows = 64;
  static constexpr int64_t blocks(int64_t tokens) { return (tokens + kReachRows - 1) / kReachRows; }
};

/// Of sequences that hold several segments end to end, (S, tokens): the first token of each one's segment,
/// and what is behind its last one. A query reads no keys of other segments. Null where sequences are whole.
struct PackedSegments {
  const int *first, *end;
};

/// What arrays have of a sequence where a call works on a part of it: one of the passes over two streams. All
/// 0 where it works on the whole.
struct RowsAround {
  int rows;    ///< in attention_output and its gradient, lse, minus_deltas and keep
  int words;   ///< of a row in keep
  int values;  ///< tokens that have values, whose lengths bound gradients
};

/// Sequences, streams, rows and padding are those of BlockShape. Heads of 16, 32 and 64 may have any number
/// of tokens. Where is_streaming(), attention is causal and without rotation, and padding reads padding; with
/// two streams (TwoStreams.h) attention is also without segments. Where not is_streaming(), the output of a
/// warp tile of 16 rows that are all padding is 0.
struct MultiheadAttention {
  using Heads = HeadMatrix<const __nv_bfloat16>;

  BlockShape shape;
  Heads queries;       ///< of the last `rows` tokens only
  Heads keys, values;  ///< of all tokens + queries
  /// Angles that rotate queries and keys, as in PreNormAttention; null for no rotation.
  const float *cosines, *sines;
  const uint32_t* keep;             ///< the dropout mask, as in DropoutMasks; null for none
  float scale;                      ///< dropout's factor of kept weights; 1 without dropout
  __nv_bfloat16* attention_output;  ///< (S · R, D); the forward pass writes it
  /// As in BlockActivations (S, H, R). The forward pass writes it, except, where not is_streaming(), for warp
  /// tiles that are all padding, which the backward pass does not read.
  float* lse;
  AlibiReach alibi = {};  ///< only for streaming_attention()
  /// Of the elements of all matrices, whose pointers say bf16. fp16 only for streaming_attention().
  ShortType type = ShortType::kBFloat16;
  PackedSegments segments = {};  ///< only for streaming_attention()
  RowsAround around = {};        ///< only for streaming_attention()

  /// Whether streaming_attention() runs it, with that function's restrictions.
  bool is_streaming() const { return is_streaming_attention(shape.tokens, shape.width / shape.heads, type); }
};

/// Gradients; `queries`, `keys` and `values` are written. Each has the layout of the matrix whose gradient it
/// is.
struct MultiheadAttentionGradients {
  const __nv_bfloat16* attention_output;  ///< (S · R, D); read
  HeadMatrix<__nv_bfloat16> queries, keys, values;
  /// How many tokens before the last `rows` have no query. Their rows of the queries' gradient are set to 0.
  int rows_before;
  /// Scratch memory (S, H, R), needed where is_streaming().
  float* minus_deltas;
  /// Scratch memory (2, S, H), needed where is_streaming() in fp16.
  float* longest_rows = nullptr;
  /// (S · blocks of kPartRows tokens, 3, D): sums over that many rows of the gradients of queries, keys and
  /// values, as they were rounded; written. Null where nobody needs them. Only for streaming_attention(),
  /// with one stream, where `rows_before` are all tokens before the last `rows`.
  float* column_parts = nullptr;
  /// Scratch memory (2, S, tokens, D), needed where is_streaming() with two streams and more rows than
  /// queries: the gradients of the context's keys and values that come from queries.
  __nv_bfloat16* from_queries = nullptr;

  static constexpr int kPartRows = 64;
  static constexpr int blocks(int tokens) { return (tokens + kPartRows - 1) / kPartRows; }
};

void multihead_attention(const MultiheadAttention& attention, cudaStream_t stream);

/// Deterministic.
void multihead_attention_backward(const MultiheadAttention& attention,
                                  const MultiheadAttentionGradients& gradients, cudaStream_t stream);

}  // namespace adtrain::kernels
