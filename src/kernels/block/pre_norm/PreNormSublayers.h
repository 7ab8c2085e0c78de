#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"
#include "kernels/TokenStreams.h"
#include "kernels/rope/Rotary.h"

/// A pre-norm block by sublayers with the attention between them, on a GPU and in 16 bit: like
/// PostNormSublayers.h, for blocks that are too large for the kernels of FusedPreNorm.h. The plain block is
/// PreNormBlock.
namespace adtrain::kernels {

/// x (B, streams.tokens(), width), which must fit, -> its last `rows` rows (B, rows, width). `parameters`:
/// the block's nine in the order of PreNormBlock::parameters(). `rotary` (streams.context, …): queries are
/// rotated as the tokens whose places they take. `streams` need masks for libtorch's attention alone.
/// `number` of the block in the pass: each draws dropout of its own. Differentiable once.
at::Tensor pre_norm_block_by_sublayers(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                       const TokenStreams& streams, const Rotary& rotary, int64_t rows,
                                       int64_t number, const BlockPass& pass);

}  // namespace adtrain::kernels
