#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"
#include "kernels/TokenStreams.h"

/// A post-norm block by sublayers with the attention between them, on a GPU and in 16 bit: large products by
/// the fastest algorithm (see Products.h), one kernel between two (see GpuRows.h). One operation of autograd
/// where the attention is our own (see KernelPlan), else libtorch's is between two. Gradients
/// of parameters are summed in fp32, in the pass's main gradients if it has one, and what comes back along a
/// residual is added to by the products themselves. For blocks that are too large to be one kernel (see
/// FusedPostNorm.h). The plain block is PostNormBlock.
namespace adtrain::kernels {

/// x (B, streams.tokens(), width), which must fit, -> its last `rows` rows (B, rows, width). `parameters`:
/// the block's twelve in the order of PostNormBlock::parameters(). `streams` need masks for libtorch's
/// attention alone. `number` of the block in the pass: each draws dropout of its own. Differentiable once.
at::Tensor post_norm_block_by_sublayers(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                        const TokenStreams& streams, int64_t rows, int64_t number,
                                        const BlockPass& pass);

}  // namespace adtrain::kernels
