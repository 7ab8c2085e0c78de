#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/Addend.h"

/// Matrix products of blocks that run by sublayers. On a GPU, large products run cuBLASLt's fastest
/// algorithm; cuBLASLt's first proposal is up to a quarter slower. The algorithms are timed on the operands
/// of a shape's first product in training. Only an algorithm whose result equals that of the first proposal
/// bit by bit is chosen, so that results do not depend on the timing, as far as one sample shows. Nothing is
/// timed in prediction, where shapes change often, or while a CUDA graph is captured: new shapes then use the
/// first proposal.
///
/// Operands are dense or are made dense. They have one type, bf16 or fp16, and sums are in fp32. Any thread
/// may call. Calls return at once, except for the first call with a shape. Where cuBLASLt has no algorithm,
/// libtorch computes the product.
namespace adtrain::kernels {

/// (…, width) -> (rows, width), dense.
at::Tensor matrix(const at::Tensor& x);

/// Whether algorithms may be timed at a shape's first product.
enum class Autotuning { kNo, kAllowed };
inline Autotuning autotuning_if(bool trains) {
  return trains ? Autotuning::kAllowed : Autotuning::kNo;
}

/// x Wᵀ + b: (…, in), W (out, in), b (out) or undefined -> (…, out).
at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                   Autotuning autotuning = Autotuning::kAllowed);

/// sum + x Wᵀ + b, where `sum` is (…, out) and stays unchanged; b (out) or undefined.
at::Tensor sum_with_product(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias = {}, Autotuning autotuning = Autotuning::kAllowed);

/// Adds x Wᵀ + b to `sum` (…, out), which is dense and which nothing else uses; b (out) or undefined.
void add_product(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& weight,
                 const at::Tensor& bias = {}, Autotuning autotuning = Autotuning::kAllowed);

/// The gradient of x, d_y W: (…, out) -> (…, in).
at::Tensor input_gradient(const at::Tensor& d_y, const at::Tensor& weight);

/// Adds d_y W to `d_x`, which is dense and which nothing else uses.
void add_input_gradient(const at::Tensor& d_y, const at::Tensor& weight, const at::Tensor& d_x);

/// Adds the gradient of W, d_yᵀ x, to `d_weight` (out, in) in fp32; or stores it there, where that is said to
/// be zero.
void add_weight_gradient(const at::Tensor& d_y, const at::Tensor& x, at::Tensor d_weight,
                         Addend held = Addend::kSums);

/// Products of as many pairs of matrices, (n, rows, in) and (n, in, out), by libtorch, in fp32: views of any
/// strides of which one is 1. The second adds them to `sums`.
at::Tensor products_in_fp32(const at::Tensor& a, const at::Tensor& b);
void add_products(const at::Tensor& a, const at::Tensor& b, at::Tensor sums);

}  // namespace adtrain::kernels
