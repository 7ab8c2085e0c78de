#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/FlatLayout.h"
#include "base/MainGradients.h"
#include "kernels/Addend.h"

namespace adtrain::kernels {

/// Where a backward pass accumulates the gradients of consecutive parameters in fp32. With main gradients it
/// adds to their memory. Without, it adds to its own memory, which starts at zero, and autograd receives the
/// result. Kernels sum the gradients of all these parameters: where some are frozen (require no gradients),
/// they do so in memory of its own, and only the gradients of the others go on from there.
class GradientAccumulation {
 public:
  /// `parameters`: consecutive in the model, as MainGradients requires. `main_gradients` may be null.
  GradientAccumulation(at::TensorList parameters, MainGradients* main_gradients);

  /// The fp32 gradient of one parameter, as a view of the parameter's shape.
  at::Tensor of(size_t parameter) const;
  /// The gradients of `count` parameters from this one on, as one flat view in their FlatLayout.
  at::Tensor of(size_t parameter, size_t count) const;

  /// What a product is added to that is all that comes to its elements of the gradient in this backward pass.
  Addend addend() const { return addend_; }

  /// Call this after all gradients have been added. Returns the gradients for autograd in the parameters'
  /// type; they are undefined where the main gradients hold them, and of what is frozen.
  std::vector<at::Tensor> finish();

 private:
  int64_t begin(size_t parameter) const;
  /// From own memory to the main gradients.
  void pass_on() const;

  std::vector<at::Tensor> parameters_;
  MainGradients* main_gradients_;
  bool in_place_;  ///< whether the kernels add to the main gradients' own memory
  FlatLayout layout_;
  at::Tensor place_;
  Addend addend_;
};

}  // namespace adtrain::kernels
