#include "model/Mlp.h"

#include <ATen/ATen.h>

namespace adtrain {

using kernels::PartRun;

at::Tensor Mlp::operator()(const at::Tensor& x, PartRun run, bool recomputes) const {
  if (recomputes) {
    return kernels::recomputed(x, parameters_of(gate, up, down), kernels::RandomNumbers::kSeeds,
                               [mlp = *this](const at::Tensor& again, PartRun of_part) {
                                 return mlp(again, of_part, /*recomputes=*/false);
                               });
  }
  return run == PartRun::kForValues ? down(inner(x)) : down.without_values(inner(x));
}

at::Tensor Mlp::inner(const at::Tensor& x) const {
  if (gate.weight.defined()) return silu_product(gate(x), up(x));
  return at::gelu(up(x), gelu == kernels::GeluKind::kTanh ? "tanh" : "none");
}

}  // namespace adtrain
