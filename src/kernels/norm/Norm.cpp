#include "kernels/norm/Norm.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "base/FlatLayout.h"
#include "kernels/MatrixOperation.h"
#include "kernels/norm/NormKernels.h"

namespace adtrain::kernels {

namespace {

float2* statistics_of(const NormedInput& input) {
  return input.statistics.defined() ? static_cast<float2*>(input.statistics.data_ptr()) : nullptr;
}

/// The norm of `x`, a dense one, before y has been computed.
NormedInput unnormed(const at::Tensor& x, const NormWeights& norm, const KeptElements& kept) {
  NormedInput input = {x, at::empty_like(x), {}, kept};
  if (norm.bias.defined())
    input.statistics = at::empty({x.numel() / x.size(-1), 2}, x.options().dtype(at::kFloat));
  return input;
}

NormedInputGradients backward_of(const at::Tensor& d_y_of_any_strides, const NormedInput& input,
                                 const NormWeights& norm, double epsilon,
                                 const at::Tensor& residual_of_any_strides, const at::Tensor& d_parameters,
                                 bool of_sum, const at::Tensor& d_next_bias = {}) {
  const c10::cuda::CUDAGuard on_device(norm.weight.device());
  const at::Tensor d_y = d_y_of_any_strides.contiguous(), &x = input.x,
                   residual = residual_of_any_strides.contiguous();
  const MatrixShape shape = shape_of(x);
  NormedInputGradients gradients = {at::empty_like(x), {}, input.y};
  at::Tensor y_again;
  if (!input.y.defined()) gradients.y = y_again = at::empty_like(x);
  if (input.drops_product) gradients.d_product = at::empty_like(x);

  const at::Tensor parts =
      parts_for(input_norm_backward_parts(shape, norm.bias.defined() || d_next_bias.defined(), processors()),
                d_parameters);
  const at::Tensor residual_parts =
      d_next_bias.defined() ? parts_for(static_cast<int>(parts.size(0)), d_next_bias) : at::Tensor();
  const int sums = 1 + (of_sum ? 1 : 0) + (norm.bias.defined() ? 1 : 0);
  input_norm_backward({.shape = shape,
                       .d_y = vectors_of(d_y),
                       .terms = static_cast<int>(d_y.size(0)),
                       .x = vectors_of(x),
                       .weight = vectors_of(norm.weight),
                       .norm_bias = vectors_or_null(norm.bias),
                       .epsilon = static_cast<float>(epsilon),
                       .statistics = statistics_of(input),
                       .dropout = dropout_of(input.kept),
                       .residual = vectors_of(residual),
                       .length = static_cast<int>(x.size(1)),
                       .residual_rows = static_cast<int>(residual.size(1)),
                       .d_x = vectors_of(gradients.d_x),
                       .parts = parts.data_ptr<float>(),
                       .part_count = static_cast<int>(parts.size(0)),
                       .stride = static_cast<int>(d_parameters.numel() / sums),
                       .of_sum = of_sum,
                       .residual_parts = d_next_bias.defined() ? residual_parts.data_ptr<float>() : nullptr,
                       .d_product = vectors_or_null(gradients.d_product),
                       .y = vectors_or_null(y_again)},
                      current_stream());
  add_up(parts, d_parameters);
  if (d_next_bias.defined()) add_up(residual_parts, d_next_bias);
  if (!input.drops_product) gradients.d_product = gradients.d_x;
  return gradients;
}

}  // namespace

NormedSum normed_sum(const at::Tensor& x_of_any_strides, const at::Tensor& product_of_any_strides,
                     const at::Tensor& bias, const at::Tensor& weight, const at::Tensor& norm_bias,
                     double epsilon, const KeptElements& kept) {
  const c10::cuda::CUDAGuard on_device(bias.device());
  const at::Tensor x = x_of_any_strides.contiguous(), product = product_of_any_strides.contiguous();
  const NormedSum sum = {at::empty_like(x), at::empty_like(x),
                         at::empty({x.numel() / x.size(-1)}, x.options().dtype(at::kFloat))};
  norm_forward({shape_of(x), vectors_of(x), vectors_of(product), vectors_of(bias), vectors_of(weight),
                vectors_of(norm_bias), static_cast<float>(epsilon), dropout_of(kept), vectors_of(sum.y),
                vectors_of(sum.normalised), sum.inverse_deviation.data_ptr<float>()},
               current_stream());
  return sum;
}

NormedSumGradients normed_sum_backward(const at::Tensor& d_y_of_any_strides, const NormedSum& sum,
                                       const at::Tensor& weight, const KeptElements& kept,
                                       const at::Tensor& d_parameters) {
  const c10::cuda::CUDAGuard on_device(weight.device());
  const MatrixShape shape = shape_of(sum.normalised);
  const at::Tensor d_y = d_y_of_any_strides.contiguous(), d_x = at::empty_like(d_y);
  const at::Tensor d_product = kept.bits.defined() ? at::empty_like(d_y) : d_x;
  const int64_t stride = FlatLayout({shape.width}).total();
  const at::Tensor parts = parts_for(norm_backward_parts(shape, processors()), d_parameters);
  norm_backward({shape, vectors_of(d_y), vectors_of(sum.normalised), vectors_of(weight),
                 sum.inverse_deviation.const_data_ptr<float>(), dropout_of(kept), vectors_of(d_x),
                 vectors_of(d_product), parts.data_ptr<float>(), static_cast<int>(parts.size(0)),
                 static_cast<int>(stride)},
                current_stream());
  add_up(parts, d_parameters);
  return {d_x, d_product};
}

NormedInput normed_input(const at::Tensor& x, const NormWeights& norm, double epsilon,
                         const KeptElements& kept) {
  const c10::cuda::CUDAGuard on_device(norm.weight.device());
  NormedInput input = unnormed(x.contiguous(), norm, kept);
  input_norm_forward({.shape = shape_of(input.x),
                      .x = vectors_of(input.x),
                      .weight = vectors_of(norm.weight),
                      .norm_bias = vectors_or_null(norm.bias),
                      .epsilon = static_cast<float>(epsilon),
                      .dropout = dropout_of(kept),
                      .y = vectors_of(input.y),
                      .statistics = statistics_of(input)},
                     current_stream());
  return input;
}

NormedInput normed_sum_input(const at::Tensor& x_of_any_strides, const at::Tensor& product_of_any_strides,
                             const at::Tensor& bias, const NormWeights& norm, double epsilon,
                             const KeptElements& kept) {
  const c10::cuda::CUDAGuard on_device(norm.weight.device());
  const at::Tensor x = x_of_any_strides.contiguous(), product = product_of_any_strides.contiguous();
  NormedInput input = unnormed(at::empty_like(x), norm, kept);
  input.drops_product = kept.bits.defined();
  input_norm_forward({.shape = shape_of(x),
                      .x = vectors_of(x),
                      .weight = vectors_of(norm.weight),
                      .norm_bias = vectors_or_null(norm.bias),
                      .epsilon = static_cast<float>(epsilon),
                      .dropout = dropout_of(kept),
                      .y = vectors_of(input.y),
                      .statistics = statistics_of(input),
                      .product = vectors_of(product),
                      .bias = vectors_of(bias),
                      .sum = vectors_of(input.x)},
                     current_stream());
  return input;
}

NormedInputGradients normed_input_backward(const at::Tensor& d_y, const NormedInput& input,
                                           const NormWeights& norm, double epsilon,
                                           const at::Tensor& residual, const at::Tensor& d_norm) {
  return backward_of(d_y, input, norm, epsilon, residual, d_norm, /*of_sum=*/false);
}

NormedInputGradients normed_sum_input_backward(const at::Tensor& d_y, const NormedInput& input,
                                               const NormWeights& norm, double epsilon,
                                               const at::Tensor& residual, const at::Tensor& d_parameters,
                                               const at::Tensor& d_next_bias) {
  return backward_of(d_y, input, norm, epsilon, residual, d_parameters, /*of_sum=*/true, d_next_bias);
}

}  // namespace adtrain::kernels
