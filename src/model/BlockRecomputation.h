#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "kernels/Recomputation.h"
#include "kernels/plan/KernelPlan.h"
#include "model/Layers.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// What the backward pass of some blocks, run by the kernels of `plan`, computes again.
struct BlockRecomputation {
  Recompute recompute = Recompute::kNone;
  kernels::RandomNumbers numbers = kernels::RandomNumbers::kSeeds;

  static BlockRecomputation of(const ModelOptions& options, const DropoutRates& rates,
                               const kernels::KernelPlan& plan);
  bool of_mlp() const { return recompute == Recompute::kMlp; }
  /// Whether a backward pass sets the device's generator back, which a captured step cannot do.
  bool rewinds_generator() const { return numbers == kernels::RandomNumbers::kGenerator; }
};

/// One block's place in a pass.
struct BlockPlace {
  int64_t number;  ///< of the block
  int64_t rows;    ///< the block outputs this many of its last tokens
  kernels::PartRun run = kernels::PartRun::kForValues;
};

/// block.in_pass(x, *pass, place), where `pass` is what all blocks of a pass share. Where blocks are computed
/// again, autograd keeps x, the pass and the block's parameters.
template <class Block, class Pass>
at::Tensor block_output(const Block& block, const at::Tensor& x, const std::shared_ptr<const Pass>& pass,
                        const BlockPlace& place, const BlockRecomputation& recomputation) {
  if (recomputation.recompute != Recompute::kBlock) return block.in_pass(x, *pass, place);
  return kernels::recomputed(x, block.parameters(), recomputation.numbers,
                             [block, pass, place](const at::Tensor& again, kernels::PartRun run) {
                               return block.in_pass(again, *pass, {place.number, place.rows, run});
                             });
}

}  // namespace adtrain
