#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/quantised/QuantisedMatrix.h"

namespace adtrain::kernels {

/// LLM.int8's product (Dettmers et al., 2022, arXiv:2208.07339) x Wᵀ + bias of rows x [rows, in_features] and
/// a matrix of 8 bits. Rows are rounded to fp16, and then, by row, to 8 bits; whole numbers are multiplied
/// exactly. Columns of x with an element of magnitude `threshold` or more are multiplied apart, by weights in
/// x's type. `bias` may be undefined. Returns x's type. On any device.
at::Tensor outlier_product(const at::Tensor& x, const QuantisedMatrix& matrix, const at::Tensor& bias,
                           double threshold);

/// The most bytes that it takes meanwhile, beside x, the matrix, the result and the weights of outliers'
/// columns. By arithmetic; a GPU's products of a shape that is no multiple of 8 take more.
int64_t outlier_product_bytes(int64_t rows, int64_t in_features, int64_t out_features);

}  // namespace adtrain::kernels
