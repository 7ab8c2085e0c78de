#pragma once

#include <ATen/core/Tensor.h>

namespace adtrain {

/// Takes the gradients of several parameters at once from a kernel that sums them in fp32 itself, instead of
/// through autograd, which would round them to the parameters' type and accumulate them one by one. For the
/// thread that runs the backward pass.
class MainGradients {
 public:
  virtual ~MainGradients() = default;

  /// The fp32 view that holds the gradients of `parameters`, in the layout of these parameters' FlatLayout;
  /// the kernel adds to it on the current stream. The parameters must be consecutive in the model, in this
  /// order.
  virtual at::Tensor place_of(at::TensorList parameters) = 0;
  /// Whether all of these are still zero in this step, so that a kernel may store what it would add. Not
  /// knowing is false.
  virtual bool are_zero(at::TensorList /*parameters*/) const { return false; }
  /// All of the gradients of this backward pass have been added (in the order of the current stream).
  virtual void added(at::TensorList parameters) = 0;
};

}  // namespace adtrain
