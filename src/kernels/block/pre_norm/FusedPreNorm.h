#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"
#include "kernels/TokenStreams.h"
#include "kernels/rope/Rotary.h"

/// A whole pre-norm block as one operation of autograd, by our own GPU kernels: norm, attention half, norm
/// and MLP half forward, the same four backward. The plain block is PreNormBlock.
namespace adtrain::kernels {

/// x (B, tokens + queries, width) in bf16 -> its last `rows` rows (B, rows, width). Each token reads itself
/// and those before it; `queries`, none or one for each token, read as in the two streams of TokenStreams,
/// and stand where the token stands whose place they take, so that `rotary` (tokens, …) is for both.
/// `parameters`: the block's nine in the order of PreNormBlock::parameters(), bf16. `number` of the block in
/// the pass: each draws dropout of its own. Differentiable once with respect to x and the parameters.
at::Tensor fused_pre_norm_block(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                const Rotary& rotary, int64_t queries, int64_t rows, int64_t number,
                                const BlockPass& pass);

}  // namespace adtrain::kernels
