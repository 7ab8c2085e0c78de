#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/quantised/ProductOptions.h"
#include "kernels/quantised/QuantisedMatrix.h"

namespace adtrain::kernels {

/// The norm of ProductOptions by itself: of rows x on any device, on a GPU of 16 bits.
at::Tensor normed_rows(const at::Tensor& x, const NormWeights& norm);

/// (2, out_features) in fp32, sums over the columns: of the weights times the norm's weight, each rounded as
/// products with rows x do, and times its bias. Undefined for RMSNorm, and where these products do not use
/// them. Returns when they are computed, so that it cannot be captured in CUDA graphs.
at::Tensor norm_products(const at::Tensor& x, const QuantisedMatrix& matrix, const NormWeights& norm);

/// The weight-only product x Wᵀ + bias of rows x [rows, in_features] of fp32, bf16 or fp16 and the weights
/// that the matrix stands for, rounded to x's type, which the result has too, and what the options say.
/// `bias` [out_features] may be undefined.
at::Tensor weight_product(const at::Tensor& x, const QuantisedMatrix& matrix, const at::Tensor& bias,
                          const ProductOptions& options = {});

}  // namespace adtrain::kernels
