#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/kernels/BlockPass.h"

/// A post-norm block as two operations of autograd with the attention between them, on a GPU and in 16 bit:
/// products by libtorch, one kernel between two products (see GpuRows.h). Gradients of parameters are summed
/// in fp32, in the pass's sink if it has one, and what comes back along a residual is added to by the
/// products themselves. For blocks that are too large to be one kernel (see FusedPostNorm.h). The plain block
/// is PostNormBlock.
namespace adtrain::kernels {

/// What the attention reads of x (B, tokens, width), and what passes it by.
struct AttentionInput {
  at::Tensor queries;       ///< of the last `rows` tokens (B, heads, rows, head size)
  at::Tensor keys, values;  ///< (B, heads, tokens, head size)
  at::Tensor residual;      ///< the last `rows` tokens of x (B, rows, width): for behind_attention alone
};

/// `parameters`: of the input projection, weight (3 width, width) and bias.
AttentionInput before_attention(const at::Tensor& x, const std::vector<at::Tensor>& parameters, int64_t rows,
                                const BlockPass& pass);

/// What the attention read (B, rows, width) -> the block's output (B, rows, width). `parameters`: the
/// block's, from the output projection on in the order of PostNormBlock::parameters(). `number` of the block
/// in the pass: each draws dropout of its own.
at::Tensor behind_attention(const at::Tensor& read, const at::Tensor& residual,
                            const std::vector<at::Tensor>& parameters, int64_t number, const BlockPass& pass);

}  // namespace adtrain::kernels
