#pragma once

#include <ATen/core/Tensor.h>

/// Sums over the rows of a matrix, the gradients of biases; as Norm.h says of its functions.
namespace adtrain::kernels {

/// One to three matrices of one shape side by side: (rows, count · width). Adds up the columns to `sums`
/// (count · width).
at::Tensor joined_columns(at::TensorList matrices, const at::Tensor& sums);

/// Adds up the columns of a matrix to `sums` (width).
void add_columns(const at::Tensor& matrix, const at::Tensor& sums);

}  // namespace adtrain::kernels
