#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"
#include "kernels/TokenStreams.h"

/// A whole post-norm block as one operation of autograd, by our own GPU kernels: one forward and two
/// backward, with everything between their products in registers and shared memory. The plain block is
/// PostNormBlock.
namespace adtrain::kernels {

/// x (B, tokens, width) in bf16 -> its last `rows` rows (B, rows, width). Which token reads which say
/// `streams`, whose masks are not read; padding, of which none comes out to be read, gets no gradient.
/// `parameters`: the block's twelve in the order of BlockWeights, bf16. `number` of the block in the pass:
/// each draws dropout of its own. Differentiable once with respect to x and the parameters.
at::Tensor fused_post_norm_block(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                 const TokenStreams& streams, int64_t rows, int64_t number,
                                 const BlockPass& pass);

}  // namespace adtrain::kernels
