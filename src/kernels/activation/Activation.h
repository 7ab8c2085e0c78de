#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/KeptElements.h"
#include "kernels/activation/GeluKind.h"

/// GELU and the gate of SwiGLU. What Norm.h says about its functions holds here too.
namespace adtrain::kernels {

/// dropout(gelu(product + bias)).
at::Tensor biased_gelu(const at::Tensor& product, const at::Tensor& bias, const KeptElements& kept,
                       GeluKind kind = GeluKind::kExact);
/// From the gradient of the result to the gradient of `product`. Adds the bias's gradient to `d_bias`
/// (width).
at::Tensor biased_gelu_backward(const at::Tensor& d_y, const at::Tensor& product, const at::Tensor& bias,
                                const KeptElements& kept, const at::Tensor& d_bias,
                                GeluKind kind = GeluKind::kExact);

/// silu(a) · b (rows, width), where `factors` (rows, 2, width) holds a and b.
at::Tensor gated(const at::Tensor& factors);
/// From the gradient of the result to the gradient of `factors`.
at::Tensor gated_backward(const at::Tensor& d_y, const at::Tensor& factors);

}  // namespace adtrain::kernels
