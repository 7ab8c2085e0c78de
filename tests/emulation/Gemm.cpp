#include "kernels/gemm/Gemm.h"

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

at::Tensor input_gradient(const at::Tensor& d_y, const at::Tensor& weight) {
  return at::matmul(d_y, weight);
}

void add_input_gradient(const at::Tensor& d_y, const at::Tensor& weight, const at::Tensor& d_x) {
  d_x.view({-1, d_x.size(-1)}).addmm_(matrix(d_y), weight);
}

namespace {

at::Tensor view_of(const Vector* values, int64_t rows, int64_t width, ShortType type) {
  return at::from_blob(const_cast<Vector*>(values), {rows, width},
                       type == ShortType::kHalf ? at::kHalf : at::kBFloat16);
}

/// What dropout multiplies each element by.
at::Tensor factors_of(const MatrixDropout& dropout, int64_t rows, int64_t width) {
  at::Tensor factors = at::ones({rows, width});
  if (dropout.keep == nullptr) return factors;
  float* const all = factors.data_ptr<float>();
  for (int64_t i = 0; i < rows * width; ++i) {
    const bool kept = (dropout.keep[i / kVectorWidth] >> (i % kVectorWidth) & 1) != 0;
    all[i] = kept ? dropout.scale : 0.0F;
  }
  return factors;
}

}  // namespace

void gelu_product(const GeluProduct& call, cudaStream_t) {
  const auto& [rows, width, type] = call.shape;
  const at::Tensor before = at::linear(view_of(call.x, rows, call.in, type).to(at::kFloat),
                                       view_of(call.weight, width, call.in, type).to(at::kFloat),
                                       view_of(call.bias, 1, width, type).to(at::kFloat).flatten());
  const at::Tensor factors = factors_of(call.dropout, rows, width);
  view_of(call.slope, rows, width, type).copy_(at::gelu_backward(factors, before));
  view_of(call.y, rows, width, type).copy_(at::gelu(before) * factors);
}

void gelu_product_gradient(const GeluProductGradient& call, cudaStream_t) {
  const auto& [rows, width, type] = call.shape;
  const at::Tensor d_y = at::mm(view_of(call.d_out, rows, call.out, type).to(at::kFloat),
                                view_of(call.weight, call.out, width, type).to(at::kFloat)),
                   d_sum = d_y * view_of(call.slope, rows, width, type).to(at::kFloat);
  view_of(call.d_sum, rows, width, type).copy_(d_sum);
  const at::Tensor parts = at::from_blob(call.parts, {gelu_product_parts(call.shape), width}).zero_();
  parts[0].copy_(d_sum.sum(0));
}

void add_weight_gradient(const at::Tensor& d_y, const at::Tensor& x, at::Tensor d_weight) {
  d_weight.addmm_(matrix(d_y).t().to(at::kFloat), matrix(x).to(at::kFloat));
}

}  // namespace adtrain::kernels
