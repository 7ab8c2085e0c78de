#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"
#include "kernels/TokenStreams.h"
#include "kernels/rope/Rotary.h"

/// A whole pre-norm block as one autograd operation on our own GPU kernels: norm, attention sublayer, norm
/// and MLP sublayer forward, and the same four backward. PreNormBlock is the plain block.
namespace adtrain::kernels {

/// x (B, tokens + queries, width) in bf16 -> its last `rows` rows (B, rows, width). Each token reads itself
/// and the tokens before it. `queries` is 0 or the number of tokens; queries read as in the two streams of
/// TokenStreams. They take the positions of tokens, so `rotary` (tokens, …) serves both streams.
/// `parameters`: the block's nine in the order of PreNormBlock::parameters(), bf16. `number`: the block's
/// index in the pass, which gives it dropout masks of its own. Differentiable once with respect to x and the
/// parameters.
at::Tensor fused_pre_norm_block(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                const Rotary& rotary, int64_t queries, int64_t rows, int64_t number,
                                const BlockPass& pass);

}  // namespace adtrain::kernels
