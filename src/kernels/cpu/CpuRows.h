#pragma once

#include <ATen/core/Tensor.h>

/// A linear layer on the CPU with what follows it in a transformer block: bias, dropout (see CpuDropout) and
/// activation or norm in one pass over the rows, where torch makes several. Differentiable; runs on torch's
/// threads. `x` (…, in), `weight` (out, in), `bias` (out).
namespace adtrain::kernels {

/// Whether the functions below support this x and rows of `out` elements: fp32 on the CPU, multiples of
/// eight, and gradients enabled. Without gradients they would do needless work for a backward pass.
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
