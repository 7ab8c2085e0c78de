#pragma once

#include <ATen/core/Tensor.h>

namespace adtrain {

/// Takes the gradients of several parameters at once from a kernel that sums them in fp32 itself, instead of
/// through autograd, which would round them to the parameters' type and take each by itself. For the thread
/// that runs the backward pass.
class GradientSink {
 public:
  virtual ~GradientSink() = default;

  /// Where the gradients of `parameters` lie, to be added to on the current stream: fp32, as the FlatLayout
  /// of these parameters lays them. They must be neighbours in the model, in this order.
  virtual at::Tensor place_of(at::TensorList parameters) = 0;
  /// All of the gradients of this backward pass have been added (in the order of the current stream).
  virtual void added(at::TensorList parameters) = 0;
};

}  // namespace adtrain
