#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/KeptElements.h"

/// GELU and the gate of SwiGLU; as Norm.h says of its functions.
namespace adtrain::kernels {

/// dropout(gelu(product + bias)).
at::Tensor biased_gelu(const at::Tensor& product, const at::Tensor& bias, const KeptElements& kept);
/// From the gradient of that to the gradient of `product`. `d_bias` (width).
at::Tensor biased_gelu_backward(const at::Tensor& d_y, const at::Tensor& product, const at::Tensor& bias,
                                const KeptElements& kept, const at::Tensor& d_bias);

/// silu(a) · b of `factors` (rows, 2, width): (rows, width).
at::Tensor gated(const at::Tensor& factors);
/// From the gradient of that to the gradient of `factors`.
at::Tensor gated_backward(const at::Tensor& d_y, const at::Tensor& factors);

}  // namespace adtrain::kernels
