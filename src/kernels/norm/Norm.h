#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/KeptElements.h"

/// LayerNorm and RMSNorm of a transformer block, with the bias, the dropout and the residual that stand
/// before them.
///
/// On a GPU and in 16 bit, where torch would go over memory several times, each function goes once over the
/// rows of its matrices, computes in fp32 and rounds only what it writes. Deterministic, on the current
/// stream. Nothing here is recorded for autograd; backward passes are functions of their own, which add the
/// gradients of parameters to fp32 sums that begin at multiples of 16 bytes. Matrices (…, width) may be views
/// and are of one type; widths are multiples of 8.
namespace adtrain::kernels {

/// norm(x + dropout(product + bias)) with LayerNorm's `weight` and `norm_bias` over the last dimension.
struct NormedSum {
  at::Tensor y;                  ///< of x's shape
  at::Tensor normalised;         ///< of x's shape: the sum less its mean and over its deviation
  at::Tensor inverse_deviation;  ///< fp32 (rows)
};
NormedSum normed_sum(const at::Tensor& x, const at::Tensor& product, const at::Tensor& bias,
                     const at::Tensor& weight, const at::Tensor& norm_bias, double epsilon,
                     const KeptElements& kept);

struct NormedSumGradients {
  at::Tensor d_x;
  at::Tensor d_product;  ///< d_x itself where nothing is dropped
};
/// `sum` may be without y. `d_parameters`: those of bias, weight and norm_bias, as their FlatLayout lays
/// them.
NormedSumGradients normed_sum_backward(const at::Tensor& d_y, const NormedSum& sum, const at::Tensor& weight,
                                       const KeptElements& kept, const at::Tensor& d_parameters);

/// RMSNorm of dropout(x) with `weight` over the last dimension.
at::Tensor rms_normed(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                      const KeptElements& kept);
/// From the gradient of that, a sum of `d_y` (terms, …, width), to that of x (B, tokens, width), to which is
/// added what its last rows get past the norm, `residual` (B, rows, width). `d_weight`: as its FlatLayout
/// lays it.
at::Tensor rms_normed_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight,
                               double epsilon, const KeptElements& kept, const at::Tensor& residual,
                               const at::Tensor& d_weight);

/// RMSNorm of the dropped sum of x, product and bias, and the sum itself.
struct RmsNormedSum {
  at::Tensor sum, y;
};
RmsNormedSum rms_normed_sum(const at::Tensor& x, const at::Tensor& product, const at::Tensor& bias,
                            const at::Tensor& weight, double epsilon, const KeptElements& kept);
/// From the gradient of y to that of the sum (B, tokens, width), which is that of x and of product, too;
/// terms and `residual` as above. `d_parameters`: those of bias and weight, as their FlatLayout lays them.
at::Tensor rms_normed_sum_backward(const at::Tensor& d_y, const at::Tensor& sum, const at::Tensor& weight,
                                   double epsilon, const KeptElements& kept, const at::Tensor& residual,
                                   const at::Tensor& d_parameters);

}  // namespace adtrain::kernels
