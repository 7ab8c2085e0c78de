#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/quantised/QuantisedMatrix.h"

namespace adtrain::kernels {

/// LLM.int8's product (Dettmers et al., 2022, arXiv:2208.07339) x Wᵀ + bias of rows x [rows, in_features] and
/// a matrix of 8 bits. Rows are rounded to fp16, and then, by row, to 8 bits; whole numbers are multiplied
/// exactly. Columns of x with an element of magnitude `threshold` or more are multiplied apart, by weights in
/// x's type. `bias` may be undefined. Returns x's type. On any device.
at::Tensor outlier_product(const at::Tensor& x, const QuantisedMatrix& matrix, const at::Tensor& bias,
                           double threshold);

}  // namespace adtrain::kernels
