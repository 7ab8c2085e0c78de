#include "model/BlockRecomputation.h"

namespace adtrain {
namespace {

/// Plain operators with dropout read the generator of their device, and libtorch's attention with it. Our
/// kernels and cuDNN's read seeds.
bool rewinds_generator(const ModelOptions& options, const DropoutRates& rates,
                       const kernels::KernelPlan& plan) {
  if (options.recompute == Recompute::kNone || plan.whole_blocks()) return false;
  const bool plain = !plan.by_sublayers();
  if (options.recompute == Recompute::kMlp) {  // in post-norm blocks alone dropout stands within the MLP
    const bool post_norm = options.compressed() || options.block() == TransformerBlock::kPostNorm;
    return plain && post_norm && rates.hidden > 0;
  }
  // Our own attention runs in blocks by sublayers, and in all those of chosen pieces.
  const bool own_attention = plan.own_attention() && (!plain || options.composed());
  const bool attention_draws = rates.attention > 0 && !plan.cudnn_attention() && !own_attention;
  return attention_draws || (plain && rates.hidden > 0);
}

}  // namespace

BlockRecomputation BlockRecomputation::of(const ModelOptions& options, const DropoutRates& rates,
                                          const kernels::KernelPlan& plan) {
  using kernels::RandomNumbers;
  const bool rewinds = adtrain::rewinds_generator(options, rates, plan);
  return {options.recompute, rewinds ? RandomNumbers::kGenerator : RandomNumbers::kSeeds};
}

}  // namespace adtrain
