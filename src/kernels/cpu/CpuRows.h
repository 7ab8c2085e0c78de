#pragma once

#include <ATen/core/Tensor.h>

/// A product with what a transformer block does after it, on the CPU: bias, dropout (see CpuDropout) and the
/// rest in one pass over the rows, where torch makes several. Differentiable; shared out over torch's
/// threads. `x` (…, in), `weight` (out, in), `bias` (out).
namespace adtrain::kernels {

/// Whether the functions below can take this x and make rows of so many elements: fp32 on the CPU, in
/// multiples of eight, and with gradients, for which they compute half of the work ahead.
bool cpu_rows_fit(const at::Tensor& x, int64_t out);

/// dropout(gelu(x Wᵀ + bias)), (…, out).
at::Tensor linear_gelu_on_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              double dropout_rate);

/// LayerNorm's weight and bias (width).
struct CpuNorm {
  at::Tensor weight, bias;
  double epsilon;
};

/// norm(residual + dropout(x Wᵀ + bias)), of residual's shape (…, out).
at::Tensor linear_normed_sum_on_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                    const at::Tensor& residual, const CpuNorm& norm, double dropout_rate);

}  // namespace adtrain::kernels
