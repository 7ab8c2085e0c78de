#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"
#include "kernels/TokenStreams.h"

/// A whole post-norm block as one autograd operation on our own GPU kernels, one forward and two backward.
/// Between its products everything stays in registers and shared memory. PostNormBlock is the plain block.
namespace adtrain::kernels {

/// x (B, tokens, width) in bf16 -> its last `rows` rows (B, rows, width). `streams` defines which token reads
/// which; its masks are not read. Padding gets no gradient, and its outputs must not be read. `parameters`:
/// the block's twelve in the order of BlockWeights, bf16. `number`: the block's index in the pass, which
/// gives it dropout masks of its own. Differentiable once with respect to x and the parameters.
at::Tensor fused_post_norm_block(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                 const TokenStreams& streams, int64_t rows, int64_t number,
                                 const BlockPass& pass);

}  // namespace adtrain::kernels
