#include "model/BlockRecomputation.h"

namespace adtrain {

BlockRecomputation BlockRecomputation::of(const ModelOptions& options, const DropoutRates& rates,
                                          const kernels::KernelPlan& plan) {
  using kernels::RandomNumbers;
  // Of all that a block runs, libtorch's attention alone reads its device's generator.
  const bool rewinds =
      options.recompute == Recompute::kBlock && rates.attention > 0 && plan.library_attention();
  return {options.recompute, rewinds ? RandomNumbers::kGenerator : RandomNumbers::kSeeds};
}

}  // namespace adtrain
