#pragma once

#include <ATen/core/Tensor.h>

/// Fused CPU operations, which take torch several passes over memory. Differentiable; they run on torch's
/// threads.
namespace adtrain::kernels {

/// Whether the functions below are for x: contiguous fp32 on the CPU, last dimension a multiple of eight.
bool cpu_elementwise_fits(const at::Tensor& x);

/// silu(a) · b for a and b of one shape.
at::Tensor silu_product_on_cpu(const at::Tensor& a, const at::Tensor& b);

/// Dropout of x (B, …) by CpuDropout; rows are those of the last dimension. Of any type, in any memory.
at::Tensor dropout_on_cpu(const at::Tensor& x, double rate);

/// x · weight / √(mean(x²) + epsilon) over the last dimension, with dropout of x (B, …) first.
at::Tensor rms_norm_on_cpu(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                           double dropout_rate);

}  // namespace adtrain::kernels
