#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/TokenStreams.h"
#include "kernels/cpu/CpuDropout.h"
#include "kernels/rope/Rotary.h"

namespace adtrain::kernels {

/// What all heads of one call share. Borrows the rotary tables.
struct HeadPlan {
  HeadPlan(const at::Tensor& qkv, int64_t rows, const TokenStreams& streams, const Rotary& rotary,
           const CpuDropout& dropout);

  int64_t rows() const { return tokens - first_row; }
  bool is_query(int64_t token) const { return token >= context; }
  /// How many tokens of the context this token reads. A query reads itself in addition.
  int64_t reads(int64_t token) const { return is_query(token) ? token - queries : token + 1; }
  /// Rotates a row by its token's position, or back.
  void rotate(float* row, int64_t token, bool back) const;

  int64_t tokens, context, queries, first_row, depth, stride;
  float scale;
  const float* cosines;  ///< (tokens, depth / 2), or null
  const float* sines;
  CpuDropout dropout;  ///< of weights (B · heads · rows, context); column reads() is for a query's own
};

/// Attention of one head of one sequence, whose rows are gathered so that they fit in the cache. It runs over
/// a few rows at a time and never writes the whole score matrix. The workspace is reused for many heads. Each
/// thread needs an object of its own.
class AttentionHead {
 public:
  explicit AttentionHead(const HeadPlan& plan);

  /// Copies the head out of (3, B, heads, tokens, depth), rotates queries and keys, scales queries.
  void gather(const at::Tensor& qkv, int64_t sequence, int64_t head);

  /// Writes each row's attention output, `out_stride` apart, and its log-sum-exp.
  void forward(float* out, int64_t out_stride, float* lse);

  /// Writes the gradients of the gathered queries, keys and values to `d_qkv`, of qkv's shape. It needs what
  /// `forward` wrote and the gradients of the outputs.
  void backward(const float* out, const float* d_out, int64_t out_stride, const float* lse,
                at::Tensor& d_qkv);

 private:
  using Rows = std::vector<float>;

  float* row(Rows& rows, int64_t index) const { return rows.data() + index * plan_.depth; }
  int64_t rows_in_block(int64_t first) const;
  int64_t block_reads(int64_t first) const;
  void own_gradients(int64_t index, float own_weight, float own_score_gradient, const float* d_read);
  CpuDropout::Row kept(int64_t index) const { return plan_.dropout.row(first_kept_row_ + index); }
  void scatter(at::Tensor& d_qkv);

  const HeadPlan& plan_;
  int64_t sequence_ = 0, head_ = 0;  ///< of the gathered head
  int64_t first_kept_row_ = 0;       ///< its first row in plan_.dropout
  Rows q_, k_, v_, k_columns_, v_columns_, weights_, d_weights_, read_;
  Rows d_q_, d_k_, d_v_;
};

}  // namespace adtrain::kernels
