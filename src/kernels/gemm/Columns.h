#pragma once

#include <ATen/core/Tensor.h>

/// Sums over the rows of a matrix, which are the gradients of biases. What Norm.h says about its functions
/// holds here too.
namespace adtrain::kernels {

/// Returns one to three matrices of one shape side by side: (rows, count · width). Adds the sums of its
/// columns to `sums` (count · width).
at::Tensor joined_columns(at::TensorList matrices, const at::Tensor& sums);

/// Adds the sums of a matrix's columns to `sums` (width). `parts` (…, width): partial sums of them in fp32,
/// where there are some already.
void add_columns(const at::Tensor& matrix, const at::Tensor& sums, const at::Tensor& parts = {});

}  // namespace adtrain::kernels
