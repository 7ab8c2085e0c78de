#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/FlatLayout.h"
#include "distributed/GradientSink.h"

namespace adtrain::kernels {

/// Where a backward pass adds up the gradients of neighbouring parameters in fp32: in the sink's memory or,
/// where there is no sink, in its own, which is zero at first and goes to autograd.
class GradientPlace {
 public:
  /// `parameters`: as the sink knows them. `sink` may be null.
  GradientPlace(at::TensorList parameters, GradientSink* sink);

  /// The gradient of a parameter, in its shape.
  at::Tensor of(size_t parameter) const;
  /// Those of `count` parameters from this one on, as their FlatLayout lays them.
  at::Tensor of(size_t parameter, size_t count) const;

  /// To be called when everything has been added: the gradients for autograd in the parameters' type,
  /// undefined where the sink has them.
  std::vector<at::Tensor> finish();

 private:
  int64_t begin(size_t parameter) const;

  std::vector<at::Tensor> parameters_;
  GradientSink* sink_;
  FlatLayout layout_;
  at::Tensor place_;
};

}  // namespace adtrain::kernels
