#pragma once

#include <ATen/core/Tensor.h>

/// Products of a block's backward pass by libtorch.
namespace adtrain::kernels {

/// (…, width) -> (rows, width).
inline at::Tensor matrix(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

/// Adds d_yᵀ x, the gradient of W in y = x Wᵀ, to `d_weight` (out, in) in fp32.
void add_weight_gradient(const at::Tensor& d_y, const at::Tensor& x, at::Tensor d_weight);

}  // namespace adtrain::kernels
