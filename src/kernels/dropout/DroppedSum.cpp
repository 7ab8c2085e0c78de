#include "kernels/dropout/DroppedSum.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/MatrixOperation.h"
#include "kernels/dropout/DroppedSumKernels.h"

namespace adtrain::kernels {

at::Tensor dropped_sum(const at::Tensor& x_of_any_strides, const at::Tensor& product_of_any_strides,
                       const at::Tensor& bias, const KeptElements& kept) {
  const c10::cuda::CUDAGuard on_device(bias.device());
  const at::Tensor x = x_of_any_strides.contiguous(), product = product_of_any_strides.contiguous(),
                   y = at::empty_like(x);
  dropped_sum_forward({shape_of(x), vectors_of(x), vectors_of(product), vectors_of(bias), dropout_of(kept),
                       vectors_of(y), processors()},
                      current_stream());
  return y;
}

at::Tensor dropped_sum_backward(const at::Tensor& d_y_of_any_strides, const KeptElements& kept,
                                const at::Tensor& d_bias) {
  const c10::cuda::CUDAGuard on_device(d_bias.device());
  const at::Tensor d_y = d_y_of_any_strides.contiguous(), d_product = at::empty_like(d_y);
  const MatrixShape shape = shape_of(d_y);
  const at::Tensor parts = parts_for(column_parts(shape, processors()), d_bias);
  dropped_sum_backward({shape, vectors_of(d_y), dropout_of(kept), vectors_of(d_product),
                        parts.data_ptr<float>(), static_cast<int>(parts.size(0))},
                       current_stream());
  add_up(parts, d_bias);
  return d_product;
}

}  // namespace adtrain::kernels
