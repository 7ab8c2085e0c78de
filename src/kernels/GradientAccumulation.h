#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/FlatLayout.h"
#include "base/MainGradients.h"

namespace adtrain::kernels {

/// Where a backward pass adds up the gradients of neighbouring parameters in fp32: in the main gradients's
/// memory or, where there is no main gradients, in its own, which is zero at first and goes to autograd.
class GradientAccumulation {
 public:
  /// `parameters`: as the main gradients knows them. `main_gradients` may be null.
  GradientAccumulation(at::TensorList parameters, MainGradients* main_gradients);

  /// The gradient of a parameter, in its shape.
  at::Tensor of(size_t parameter) const;
  /// Those of `count` parameters from this one on, as their FlatLayout lays them.
  at::Tensor of(size_t parameter, size_t count) const;

  /// To be called when everything has been added: the gradients for autograd in the parameters' type,
  /// undefined where the main gradients has them.
  std::vector<at::Tensor> finish();

 private:
  int64_t begin(size_t parameter) const;

  std::vector<at::Tensor> parameters_;
  MainGradients* main_gradients_;
  FlatLayout layout_;
  at::Tensor place_;
};

}  // namespace adtrain::kernels
