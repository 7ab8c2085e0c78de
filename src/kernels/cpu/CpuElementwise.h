#pragma once

#include <ATen/core/Tensor.h>

/// Fused forms, on the CPU, of what torch does in several passes over memory. Differentiable; shared out over
/// torch's threads.
namespace adtrain::kernels {

/// Whether the functions below can take these: contiguous fp32 on the CPU, last dimension a multiple of
/// eight.
bool cpu_elementwise_fits(const at::Tensor& x);

/// silu(a) · b for a and b of one shape.
at::Tensor silu_product_on_cpu(const at::Tensor& a, const at::Tensor& b);

/// x of dropout by CpuDropout, in rows of the last dimension.
at::Tensor dropout_on_cpu(const at::Tensor& x, double rate);

/// x · weight / √(mean(x²) + epsilon) over the last dimension, of x after dropout.
at::Tensor rms_norm_on_cpu(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                           double dropout_rate);

/// Dropout by our own kernel where it fits, else libtorch's. x itself where the rate is 0.
at::Tensor dropout(const at::Tensor& x, double rate);

}  // namespace adtrain::kernels
