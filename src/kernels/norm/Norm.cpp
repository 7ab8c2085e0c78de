#include "kernels/norm/Norm.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "base/FlatLayout.h"
#include "kernels/MatrixOperation.h"
#include "kernels/norm/NormKernels.h"

namespace adtrain::kernels {

namespace {

/// rms_normed_backward or, where the input is a sum, rms_normed_sum_backward.
at::Tensor backward_of_rms_norm(const at::Tensor& d_y_of_any_strides, const at::Tensor& x_of_any_strides,
                                const at::Tensor& weight, double epsilon, const KeptElements& kept,
                                const at::Tensor& residual_of_any_strides, const at::Tensor& d_parameters,
                                bool of_sum) {
  const c10::cuda::CUDAGuard on_device(weight.device());
  const at::Tensor d_y = d_y_of_any_strides.contiguous(), x = x_of_any_strides.contiguous(),
                   residual = residual_of_any_strides.contiguous(), d_x = at::empty_like(x);
  const MatrixShape shape = shape_of(x);
  const at::Tensor parts = parts_for(rms_norm_backward_parts(shape, processors()), d_parameters);
  rms_norm_backward(
      {shape, vectors_of(d_y), static_cast<int>(d_y.size(0)), vectors_of(x), vectors_of(weight),
       static_cast<float>(epsilon), dropout_of(kept), vectors_of(residual), static_cast<int>(x.size(1)),
       static_cast<int>(residual.size(1)), vectors_of(d_x), parts.data_ptr<float>(),
       static_cast<int>(parts.size(0)), static_cast<int>(d_parameters.numel() / (of_sum ? 2 : 1)), of_sum},
      current_stream());
  add_up(parts, d_parameters);
  return d_x;
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

at::Tensor rms_normed(const at::Tensor& x_of_any_strides, const at::Tensor& weight, double epsilon,
                      const KeptElements& kept) {
  const c10::cuda::CUDAGuard on_device(weight.device());
  const at::Tensor x = x_of_any_strides.contiguous(), y = at::empty_like(x);
  rms_norm_forward({shape_of(x), vectors_of(x), vectors_of(weight), static_cast<float>(epsilon),
                    dropout_of(kept), vectors_of(y)},
                   current_stream());
  return y;
}

at::Tensor rms_normed_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight,
                               double epsilon, const KeptElements& kept, const at::Tensor& residual,
                               const at::Tensor& d_weight) {
  return backward_of_rms_norm(d_y, x, weight, epsilon, kept, residual, d_weight, /*of_sum=*/false);
}

RmsNormedSum rms_normed_sum(const at::Tensor& x_of_any_strides, const at::Tensor& product_of_any_strides,
                            const at::Tensor& bias, const at::Tensor& weight, double epsilon,
                            const KeptElements& kept) {
  const c10::cuda::CUDAGuard on_device(weight.device());
  const at::Tensor x = x_of_any_strides.contiguous(), product = product_of_any_strides.contiguous();
  const RmsNormedSum found = {at::empty_like(x), at::empty_like(x)};
  rms_norm_forward(
      {shape_of(x), vectors_of(x), vectors_of(weight), static_cast<float>(epsilon), dropout_of(kept),
       vectors_of(found.y), vectors_of(product), vectors_of(bias), vectors_of(found.sum)},
      current_stream());
  return found;
}

at::Tensor rms_normed_sum_backward(const at::Tensor& d_y, const at::Tensor& sum, const at::Tensor& weight,
                                   double epsilon, const KeptElements& kept, const at::Tensor& residual,
                                   const at::Tensor& d_parameters) {
  return backward_of_rms_norm(d_y, sum, weight, epsilon, kept, residual, d_parameters, /*of_sum=*/true);
}

}  // namespace adtrain::kernels
