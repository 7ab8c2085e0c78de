#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/Attention.h"
#include "model/kernels/BlockPass.h"

/// A post-norm block by halves with the attention between them, on a GPU and in 16 bit: large products by the
/// fastest algorithm (see Products.h), one kernel between two (see GpuRows.h). One operation of autograd
/// where the attention is our own (see why_no_projected_attention), else libtorch's is between two. Gradients
/// of parameters are summed in fp32, in the pass's sink if it has one, and what comes back along a residual
/// is added to by the products themselves. For blocks that are too large to be one kernel (see
/// FusedPostNorm.h). The plain block is PostNormBlock.
namespace adtrain::kernels {

/// x (B, streams.tokens(), width), which must fit, -> its last `rows` rows (B, rows, width). `parameters`:
/// the block's twelve in the order of PostNormBlock::parameters(). `streams` need masks for libtorch's
/// attention alone. `number` of the block in the pass: each draws dropout of its own. Differentiable once.
at::Tensor post_norm_block_by_halves(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                     const Streams& streams, int64_t rows, int64_t number,
                                     const BlockPass& pass);

}  // namespace adtrain::kernels
