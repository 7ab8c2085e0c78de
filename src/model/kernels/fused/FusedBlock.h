#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "distributed/GradientSink.h"
#include "model/kernels/KeepBits.h"

/// A whole post-norm block as one operation of autograd, by our own GPU kernels: one forward and two
/// backward, with everything between their products in registers and shared memory. The plain block is
/// PostNormBlock.
namespace adtrain::kernels {

/// Sizes that decide whether there are kernels for a block. `tokens`: of the context.
struct FusedBlockSizes {
  int64_t width, heads, inner, tokens;
};

/// Why blocks of these sizes have no kernels on this GPU, for people; empty where they have.
std::optional<std::string> why_no_fused_blocks(const FusedBlockSizes& sizes, const at::Device& device);

/// What the blocks of one forward pass have in common.
struct FusedPass {
  /// `like`: a tensor on the GPU. The seed of dropout is drawn from the default generator of its device.
  FusedPass(const at::Tensor& like, int64_t heads, double attention_rate, double hidden_rate,
            GradientSink* sink);

  int64_t heads;
  KeepProbability keep_attention, keep_hidden;
  at::Tensor seed;     ///< int64 (1) on the GPU: of dropout; undefined where everything is kept
  GradientSink* sink;  ///< null: parameters get their gradients from autograd, in their own type
};

/// x (B, tokens + queries, width) in bf16 -> its last `rows` rows (B, rows, width). Each token reads itself
/// and those before it; `queries`, none or one for each token, read as in the two streams of Streams.
/// `parameters`: the block's twelve in the order of BlockWeights, bf16. `number` of the block in the pass:
/// each draws dropout of its own. Differentiable once with respect to x and the parameters.
at::Tensor fused_block(const at::Tensor& x, const std::vector<at::Tensor>& parameters, int64_t queries,
                       int64_t rows, int64_t number, const FusedPass& pass);

}  // namespace adtrain::kernels
