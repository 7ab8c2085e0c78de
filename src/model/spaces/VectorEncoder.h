#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "model/Initialisation.h"
#include "model/Layers.h"

namespace adtrain {

/// Features of a vector of real numbers: a linear layer, or Vintix's MLP (arXiv:2501.19400), which is Linear,
/// LeakyReLU, LayerNorm, and the same once more.
class VectorEncoder {
 public:
  static VectorEncoder linear(ParameterFactory& factory, const std::string& name, int64_t numbers,
                              int64_t features, const Initialisation& initial);
  static VectorEncoder mlp(ParameterFactory& factory, const std::string& name, int64_t numbers,
                           int64_t features, const Initialisation& initial);

  /// (B, T, …) of any real type, the rest of whose extents is one vector -> (B, T, features) of the
  /// parameters' type.
  at::Tensor operator()(const at::Tensor& vectors) const;

 private:
  Linear first_, second_;  ///< the second and the norms are undefined for a linear layer
  LayerNorm first_norm_, second_norm_;
};

}  // namespace adtrain
