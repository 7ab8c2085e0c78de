#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/Attention.h"
#include "model/kernels/BlockPass.h"

/// A pre-norm block by halves with the attention between them, on a GPU and in 16 bit: like PostNormHalves.h,
/// for blocks that are too large for the kernels of FusedPreNorm.h. The plain block is PreNormBlock.
namespace adtrain::kernels {

/// x (B, streams.tokens(), width), which must fit, -> its last `rows` rows (B, rows, width). `parameters`:
/// the block's nine in the order of PreNormBlock::parameters(). `rotary` (streams.context, …): queries turn
/// as the tokens whose places they take. `streams` need masks for libtorch's attention alone. `number` of the
/// block in the pass: each draws dropout of its own. Differentiable once.
at::Tensor pre_norm_block_by_halves(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                    const Streams& streams, const Rotary& rotary, int64_t rows,
                                    int64_t number, const BlockPass& pass);

}  // namespace adtrain::kernels
