#pragma once

#include <ATen/core/Tensor.h>

/// Matrix products of blocks that run by halves. Large ones on a GPU take the algorithm of cuBLASLt that is
/// the fastest there: its own first guess is up to a fourth slower (see docs/kernels.md). Candidates are
/// timed when a product of a shape is first asked for, and only those are taken whose result equals the first
/// guess's bit by bit, so that no result depends on what was timed. While a CUDA graph is captured nothing is
/// timed: shapes that are new then take the first guess.
///
/// Operands are dense or become so, of one type, bf16 or fp16, with sums in fp32. Any thread may call; calls
/// return at once but for the first of a shape. They throw EnvironmentError where cuBLASLt fails.
namespace adtrain::kernels {

/// (…, width) -> (rows, width), dense.
at::Tensor matrix(const at::Tensor& x);

/// x Wᵀ + b: (…, in), W (out, in), b (out) or undefined -> (…, out).
at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

/// x Wᵀ added to `sum` (…, out), which stays as it is.
at::Tensor sum_with_product(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& weight);

/// The gradient for x, d_y W: (…, out) -> (…, in).
at::Tensor input_gradient(const at::Tensor& d_y, const at::Tensor& weight);

/// Adds d_y W to `d_x`, which is dense and nobody else's.
void add_input_gradient(const at::Tensor& d_y, const at::Tensor& weight, const at::Tensor& d_x);

/// Adds the gradient for W, d_yᵀ x, to `d_weight` (out, in) in fp32.
void add_weight_gradient(const at::Tensor& d_y, const at::Tensor& x, at::Tensor d_weight);

}  // namespace adtrain::kernels
