#pragma once

#include <ATen/core/Tensor.h>

/// Matrix products of blocks that run by sublayers. Large ones on a GPU take the algorithm of cuBLASLt that
/// is the fastest there: its own first guess is up to a fourth slower. Candidates are timed when a product of
/// a shape is first asked for in training, on its operands, and only those are taken whose result equals the
/// first guess's bit by bit, so that results do not depend on what was timed, as far as one sample shows. In
/// prediction, where shapes come and go, and while a CUDA graph is captured nothing is timed: shapes that are
/// new then take the first guess.
///
/// Operands are dense or become so, of one type, bf16 or fp16, with sums in fp32. Any thread may call; calls
/// return at once but for the first of a shape. What cuBLASLt has no algorithm for is libtorch's.
namespace adtrain::kernels {

/// (…, width) -> (rows, width), dense.
at::Tensor matrix(const at::Tensor& x);

/// Whether algorithms may be timed.
enum class Autotuning { kNo, kAllowed };
inline Autotuning autotuning_if(bool trains) {
  return trains ? Autotuning::kAllowed : Autotuning::kNo;
}

/// x Wᵀ + b: (…, in), W (out, in), b (out) or undefined -> (…, out).
at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                   Autotuning autotuning = Autotuning::kAllowed);

/// x Wᵀ added to `sum` (…, out), which stays as it is.
at::Tensor sum_with_product(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& weight,
                            Autotuning autotuning = Autotuning::kAllowed);

/// The gradient for x, d_y W: (…, out) -> (…, in).
at::Tensor input_gradient(const at::Tensor& d_y, const at::Tensor& weight);

/// Adds d_y W to `d_x`, which is dense and nobody else's.
void add_input_gradient(const at::Tensor& d_y, const at::Tensor& weight, const at::Tensor& d_x);

/// Adds the gradient for W, d_yᵀ x, to `d_weight` (out, in) in fp32.
void add_weight_gradient(const at::Tensor& d_y, const at::Tensor& x, at::Tensor d_weight);

}  // namespace adtrain::kernels
