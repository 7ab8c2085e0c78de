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

/// The parameters of a norm over the last dimension: LayerNorm, or RMSNorm where `bias` is undefined.
struct NormWeights {
  at::Tensor weight, bias;
};

/// The norm before a sublayer, y = norm(dropout(x)), and what its backward pass needs.
struct NormedInput {
  at::Tensor x;
  at::Tensor y;
  at::Tensor statistics;  ///< fp32 (rows, 2): mean and 1 / deviation; undefined for RMSNorm
  KeptElements kept;
  bool drops_product = false;  ///< whether `kept` is of the product in the sum x, and not of x
};
NormedInput normed_input(const at::Tensor& x, const NormWeights& norm, double epsilon,
                         const KeptElements& kept);
/// The norm of a sum: y = norm(x) of the returned x, which is x + dropout(product + bias).
NormedInput normed_sum_input(const at::Tensor& x, const at::Tensor& product, const at::Tensor& bias,
                             const NormWeights& norm, double epsilon, const KeptElements& kept);

struct NormedInputGradients {
  at::Tensor d_x;
  at::Tensor d_product;  ///< of the product in the sum x; d_x itself where it was not dropped
  at::Tensor y;          ///< `input.y` or, where LayerNorm's had been freed, the same again
};
/// From the gradient of y, the sum over the terms of `d_y` (terms, …, width), to the gradient of x (B,
/// tokens, width). It includes `residual` (B, rows, width), the gradient that reaches x's last rows through
/// the residual connection. `d_norm`: the fp32 sums for the norm's parameters in their FlatLayout.
NormedInputGradients normed_input_backward(const at::Tensor& d_y, const NormedInput& input,
                                           const NormWeights& norm, double epsilon,
                                           const at::Tensor& residual, const at::Tensor& d_norm);
/// The same where x is a sum with a bias, whoever added it up. `d_parameters`: the fp32 sums for that bias
/// and the norm's parameters in their FlatLayout. `d_next_bias`: the fp32 sums (width) of `residual` over its
/// rows, the gradient of a bias that is added to what follows the residual connection; undefined where nobody
/// needs them.
NormedInputGradients normed_sum_input_backward(const at::Tensor& d_y, const NormedInput& input,
                                               const NormWeights& norm, double epsilon,
                                               const at::Tensor& residual, const at::Tensor& d_parameters,
                                               const at::Tensor& d_next_bias = {});

}  // namespace adtrain::kernels
