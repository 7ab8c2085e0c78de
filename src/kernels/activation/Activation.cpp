#include "kernels/activation/Activation.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/MatrixOperation.h"
#include "kernels/activation/ActivationKernels.h"

namespace adtrain::kernels {

at::Tensor biased_gelu(const at::Tensor& product_of_any_strides, const at::Tensor& bias,
                       const KeptElements& kept, GeluKind kind) {
  const c10::cuda::CUDAGuard on_device(bias.device());
  const at::Tensor product = product_of_any_strides.contiguous(), y = at::empty_like(product);
  gelu_forward({shape_of(product), kind, vectors_of(product), vectors_of(bias), dropout_of(kept),
                vectors_of(y), processors()},
               current_stream());
  return y;
}

at::Tensor biased_gelu_backward(const at::Tensor& d_y_of_any_strides,
                                const at::Tensor& product_of_any_strides, const at::Tensor& bias,
                                const KeptElements& kept, const at::Tensor& d_bias, GeluKind kind) {
  const c10::cuda::CUDAGuard on_device(bias.device());
  const at::Tensor d_y = d_y_of_any_strides.contiguous(), product = product_of_any_strides.contiguous();
  const MatrixShape shape = shape_of(product);
  const at::Tensor d_product = at::empty_like(d_y);
  const at::Tensor parts = parts_for(column_parts(shape, processors()), d_bias);
  gelu_backward({shape, kind, vectors_of(d_y), vectors_of(product), vectors_of(bias), dropout_of(kept),
                 vectors_of(d_product), parts.data_ptr<float>(), static_cast<int>(parts.size(0))},
                current_stream());
  add_up(parts, d_bias);
  return d_product;
}

at::Tensor gated(const at::Tensor& factors_of_any_strides) {
  const c10::cuda::CUDAGuard on_device(factors_of_any_strides.device());
  const at::Tensor factors = factors_of_any_strides.contiguous();
  const at::Tensor y = at::empty({factors.size(0), factors.size(2)}, factors.options());
  silu_product_forward({shape_of(y), vectors_of(factors), vectors_of(y), processors()}, current_stream());
  return y;
}

at::Tensor gated_backward(const at::Tensor& d_y_of_any_strides, const at::Tensor& factors_of_any_strides) {
  const c10::cuda::CUDAGuard on_device(factors_of_any_strides.device());
  const at::Tensor d_y = d_y_of_any_strides.contiguous(), factors = factors_of_any_strides.contiguous(),
                   d_factors = at::empty_like(factors);
  silu_product_backward(
      {shape_of(d_y), vectors_of(d_y), vectors_of(factors), vectors_of(d_factors), processors()},
      current_stream());
  return d_factors;
}

}  // namespace adtrain::kernels
