#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"
#include "kernels/TokenStreams.h"
#include "kernels/rope/Rotary.h"

/// A pre-norm block by sublayers with attention between them, on a GPU and in 16 bit: as PostNormSublayers.h,
/// for blocks that are too large for the kernels of FusedPreNorm.h. PreNormBlock is the plain block.
namespace adtrain::kernels {

/// x (B, streams.tokens(), width), of a width that KernelPlan allows, -> its last `rows` rows (B, rows,
/// width). `parameters`: the block's nine in the order of PreNormBlock::parameters(). `rotary`
/// (streams.context, …): queries take the angles of the tokens whose positions they take. `streams` needs
/// masks only for libtorch's attention. `number`: the block's index in the pass, which gives it dropout masks
/// of its own. Differentiable once.
at::Tensor pre_norm_block_by_sublayers(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                       const TokenStreams& streams, const Rotary& rotary, int64_t rows,
                                       int64_t number, const BlockPass& pass);

}  // namespace adtrain::kernels
