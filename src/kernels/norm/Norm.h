#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/KeptElements.h"

/// LayerNorm and RMSNorm of a transformer block, with the bias, dropout and residual before them.
///
/// The functions are for 16-bit tensors on a GPU, where torch's operators would read memory several times.
/// Each reads the rows of its matrices once, computes in fp32 and rounds only what it writes. They are
/// deterministic and run on the current stream. Autograd does not record them. The backward passes are
/// functions of their own, which add the gradients of parameters to fp32 sums that are aligned to 16 bytes.
/// Matrices (…, width) may be views and have one type; widths are multiples of 8.
namespace adtrain::kernels {

/// y = norm(x + dropout(product + bias)) with LayerNorm's `weight` and `norm_bias` over the last dimension.
struct NormedSum {
  at::Tensor y;                  ///< of x's shape
  at::Tensor normalised;         ///< of x's shape: (sum − mean) / deviation
  at::Tensor inverse_deviation;  ///< fp32 (rows): 1 / deviation
};
NormedSum normed_sum(const at::Tensor& x, const at::Tensor& product, const at::Tensor& bias,
                     const at::Tensor& weight, const at::Tensor& norm_bias, double epsilon,
                     const KeptElements& kept);

struct NormedSumGradients {
  at::Tensor d_x;
  at::Tensor d_product;  ///< d_x itself where there is no dropout
};
/// `sum` may lack y. `d_parameters`: the fp32 sums for bias, weight and norm_bias in their FlatLayout.
NormedSumGradients normed_sum_backward(const at::Tensor& d_y, const NormedSum& sum, const at::Tensor& weight,
                                       const KeptElements& kept, const at::Tensor& d_parameters);

/// RMSNorm of dropout(x) with `weight` over the last dimension.
at::Tensor rms_normed(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                      const KeptElements& kept);
/// From the gradient of y, the sum over the terms of `d_y` (terms, …, width), to the gradient of x (B,
/// tokens, width). It includes `residual` (B, rows, width), the gradient that reaches x's last rows through
/// the residual connection. `d_weight`: the fp32 sum for weight in its FlatLayout.
at::Tensor rms_normed_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight,
                               double epsilon, const KeptElements& kept, const at::Tensor& residual,
                               const at::Tensor& d_weight);

/// y = RMSNorm of dropout(sum), where sum = x + product + bias.
struct RmsNormedSum {
  at::Tensor sum, y;
};
RmsNormedSum rms_normed_sum(const at::Tensor& x, const at::Tensor& product, const at::Tensor& bias,
                            const at::Tensor& weight, double epsilon, const KeptElements& kept);
/// From the gradient of y to the gradient of the sum (B, tokens, width), which is also that of x and of
/// product. The terms of `d_y` and `residual` are as above. `d_parameters`: the fp32 sums for bias and weight
/// in their FlatLayout.
at::Tensor rms_normed_sum_backward(const at::Tensor& d_y, const at::Tensor& sum, const at::Tensor& weight,
                                   double epsilon, const KeptElements& kept, const at::Tensor& residual,
                                   const at::Tensor& d_parameters);

}  // namespace adtrain::kernels
