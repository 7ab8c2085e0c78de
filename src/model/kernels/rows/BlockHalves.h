#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/kernels/BlockPass.h"

/// A post-norm block as two operations of autograd with the attention between them, libtorch's or our own, on
/// a GPU and in 16 bit: large products by the fastest algorithm (see Products.h), one kernel between two (see
/// GpuRows.h). Gradients of parameters are summed in fp32, in the pass's sink if it has one, and what comes
/// back along a residual is added to by the products themselves. For blocks that are too large to be one
/// kernel (see FusedPostNorm.h). The plain block is PostNormBlock.
namespace adtrain::kernels {

/// What the attention reads of x (B, tokens, width), and what passes it by.
struct AttentionInput {
  at::Tensor queries;       ///< of the last `rows` tokens (B, heads, rows, head size)
  at::Tensor keys, values;  ///< (B, heads, tokens, head size)
  at::Tensor residual;      ///< the last `rows` tokens of x (B, rows, width): for behind_attention alone
};

/// The same as the input projection leaves it, for projected_attention().
struct ProjectedInput {
  /// All that is read (B, tokens, 3 width) or, where only some tokens have queries, these (B, rows, width)
  /// and then keys and values (B, tokens, 2 width).
  std::vector<at::Tensor> projected;
  at::Tensor residual;
};

/// `parameters`: of the input projection, weight (3 width, width) and bias.
ProjectedInput before_projected_attention(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                          int64_t rows, const BlockPass& pass);
AttentionInput before_attention(const at::Tensor& x, const std::vector<at::Tensor>& parameters, int64_t rows,
                                const BlockPass& pass);

/// What the attention read (B, rows, width) -> the block's output (B, rows, width). `parameters`: the
/// block's, from the output projection on in the order of PostNormBlock::parameters(). `draw`: of
/// dropout's bits in the pass, for this place alone.
at::Tensor behind_attention(const at::Tensor& read, const at::Tensor& residual,
                            const std::vector<at::Tensor>& parameters, int64_t draw, const BlockPass& pass);

}  // namespace adtrain::kernels
