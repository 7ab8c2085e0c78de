#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"
#include "kernels/TokenStreams.h"

/// A post-norm block by sublayers with attention between them, on a GPU and in 16 bit. Large products run the
/// fastest algorithm (see gemm/Gemm.h), with one kernel between two products (see norm/Norm.h and
/// activation/Activation.h). The block is one autograd operation with our own attention (see KernelPlan);
/// else libtorch's attention is between two operations. Gradients of parameters are added in fp32, to the
/// pass's main gradients if it has them. The products themselves add to the gradient that comes through a
/// residual connection. For blocks that are too large to be one kernel (see FusedPostNorm.h). PostNormBlock
/// is the plain block.
namespace adtrain::kernels {

/// x (B, streams.tokens(), width), of a width that KernelPlan allows, -> its last `rows` rows (B, rows,
/// width). `parameters`: the block's twelve in the order of PostNormBlock::parameters(). `streams` needs
/// masks only for libtorch's attention. `number`: the block's index in the pass, which gives it dropout masks
/// of its own. Differentiable once.
at::Tensor post_norm_block_by_sublayers(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                        const TokenStreams& streams, int64_t rows, int64_t number,
                                        const BlockPass& pass);

}  // namespace adtrain::kernels
