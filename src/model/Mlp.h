#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/Recomputation.h"
#include "kernels/activation/GeluKind.h"
#include "model/Layers.h"

namespace adtrain {

/// The MLP of a block whose norm stands before it: down(gelu(up(x))) or, with a gate, down(silu(gate(x)) ·
/// up(x)).
struct Mlp {
  Linear gate;  ///< SwiGLU's; undefined for GELU
  Linear up, down;
  kernels::GeluKind gelu = kernels::GeluKind::kExact;

  /// `recomputes`: whether autograd keeps x alone, and computes what `down` multiplies again.
  at::Tensor operator()(const at::Tensor& x, kernels::PartRun run, bool recomputes) const;
  /// What `down` multiplies.
  at::Tensor inner(const at::Tensor& x) const;
};

}  // namespace adtrain
