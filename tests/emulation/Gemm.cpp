#include "kernels/gemm/Gemm.h"

#include <cmath>
#include <stdexcept>

#include <ATen/ATen.h>

#include "kernels/mlp/GeluProducts.h"

/// Instead of the products' own and CUTLASS's: by libtorch, which adds products of 16-bit matrices to fp32 on
/// GPUs only.
namespace adtrain::kernels {

at::Tensor matrix(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)}).contiguous();
}

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Autotuning) {
  return at::linear(x, weight, bias);
}

at::Tensor sum_with_product(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, Autotuning) {
  const at::Tensor c = matrix(sum);
  return at::addmm(bias.defined() ? c + bias : c, matrix(x), weight.t()).view(sum.sizes());
}

void add_product(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                 Autotuning) {
  const at::Tensor sums = sum.view({-1, sum.size(-1)});
  if (bias.defined()) sums.add_(bias);
  sums.addmm_(matrix(x), weight.t());
}

at::Tensor input_gradient(const at::Tensor& d_y, const at::Tensor& weight) {
  return at::matmul(d_y, weight);
}

void add_input_gradient(const at::Tensor& d_y, const at::Tensor& weight, const at::Tensor& d_x) {
  d_x.view({-1, d_x.size(-1)}).addmm_(matrix(d_y), weight);
}

void gelu_product(const GeluProduct&, cudaStream_t) {
  throw std::logic_error("Products so large that GELU is in their epilogue are not emulated.");
}
void gelu_product_gradient(const GeluProductGradient&, cudaStream_t) {
  throw std::logic_error("Products so large that GELU's gradient is in their epilogue are not emulated.");
}

void add_weight_gradient(const at::Tensor& d_y, const at::Tensor& x, at::Tensor d_weight, Addend held) {
  if (held == Addend::kZero) d_weight.fill_(NAN);  // the caller may not rely on what it holds
  const double kept = held == Addend::kZero ? 0 : 1;
  at::addmm_out(d_weight, d_weight, matrix(d_y).t().to(at::kFloat), matrix(x).to(at::kFloat), kept);
}

at::Tensor products_in_fp32(const at::Tensor& a, const at::Tensor& b) {
  return at::bmm(a.to(at::kFloat), b.to(at::kFloat));
}

void add_products(const at::Tensor& a, const at::Tensor& b, at::Tensor sums) {
  sums.baddbmm_(a.to(at::kFloat), b.to(at::kFloat));
}

}  // namespace adtrain::kernels
