#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/FlatLayout.h"
#include "base/MainGradients.h"

namespace adtrain::kernels {

/// Where a backward pass accumulates the gradients of consecutive parameters in fp32. With main gradients it
/// adds to their memory. Without, it adds to its own memory, which starts at zero, and autograd receives the
/// result.
class GradientAccumulation {
 public:
  /// `parameters`: consecutive in the model, as MainGradients requires. `main_gradients` may be null.
  GradientAccumulation(at::TensorList parameters, MainGradients* main_gradients);

  /// The fp32 gradient of one parameter, as a view of the parameter's shape.
  at::Tensor of(size_t parameter) const;
  /// The gradients of `count` parameters from this one on, as one flat view in their FlatLayout.
  at::Tensor of(size_t parameter, size_t count) const;

  /// Call this after all gradients have been added. Returns the gradients for autograd in the parameters'
  /// type; they are undefined where the main gradients hold them.
  std::vector<at::Tensor> finish();

 private:
  int64_t begin(size_t parameter) const;

  std::vector<at::Tensor> parameters_;
  MainGradients* main_gradients_;
  FlatLayout layout_;
  at::Tensor place_;
};

}  // namespace adtrain::kernels
