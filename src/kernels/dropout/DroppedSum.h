#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/KeptElements.h"

/// What a product adds to the residual stream through dropout. What Norm.h says about its functions holds
/// here too; `kept` drops.
namespace adtrain::kernels {

/// x + dropout(product + bias), of x's shape.
at::Tensor dropped_sum(const at::Tensor& x, const at::Tensor& product, const at::Tensor& bias,
                       const KeptElements& kept);
/// From the gradient of the result, which is that of x, to the gradient of `product`. Adds the bias's to
/// `d_bias` (width).
at::Tensor dropped_sum_backward(const at::Tensor& d_y, const KeptElements& kept, const at::Tensor& d_bias);

}  // namespace adtrain::kernels
