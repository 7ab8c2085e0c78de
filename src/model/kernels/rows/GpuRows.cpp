#include "model/kernels/rows/GpuRows.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#include "base/FlatLayout.h"
#include "model/kernels/KernelOperation.h"
#include "model/kernels/rows/RowKernels.h"

namespace adtrain::kernels {
namespace {

Vector* vectors_of(const at::Tensor& tensor) {
  return static_cast<Vector*>(tensor.data_ptr());
}

MatrixShape shape_of(const at::Tensor& x) {
  const ShortType type = x.scalar_type() == at::kHalf ? ShortType::kHalf : ShortType::kBFloat16;
  return {x.numel() / x.size(-1), static_cast<int>(x.size(-1)), type};
}

int processors() {
  return at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
}

DropoutBits dropout_of(const KeptElements& kept) {
  return {kept.bits.defined() ? kept.bits.const_data_ptr<uint8_t>() : nullptr, kept.scale};
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

at::Tensor rms_normed_backward(const at::Tensor& d_y_of_any_strides, const at::Tensor& x_of_any_strides,
                               const at::Tensor& weight, double epsilon, const KeptElements& kept,
                               const at::Tensor& residual_of_any_strides, const at::Tensor& d_weight) {
  const c10::cuda::CUDAGuard on_device(weight.device());
  const at::Tensor d_y = d_y_of_any_strides.contiguous(), x = x_of_any_strides.contiguous(),
                   residual = residual_of_any_strides.contiguous(), d_x = at::empty_like(x);
  const MatrixShape shape = shape_of(x);
  const at::Tensor parts = parts_for(rms_norm_backward_parts(shape, processors()), d_weight);
  rms_norm_backward(
      {shape, vectors_of(d_y), static_cast<int>(d_y.size(0)), vectors_of(x), vectors_of(weight),
       static_cast<float>(epsilon), dropout_of(kept), vectors_of(residual), static_cast<int>(x.size(1)),
       static_cast<int>(residual.size(1)), vectors_of(d_x), parts.data_ptr<float>(),
       static_cast<int>(parts.size(0)), static_cast<int>(d_weight.numel())},
      current_stream());
  add_up(parts, d_weight);
  return d_x;
}

at::Tensor biased_gelu(const at::Tensor& product_of_any_strides, const at::Tensor& bias,
                       const KeptElements& kept) {
  const c10::cuda::CUDAGuard on_device(bias.device());
  const at::Tensor product = product_of_any_strides.contiguous(), y = at::empty_like(product);
  gelu_forward({shape_of(product), vectors_of(product), vectors_of(bias), dropout_of(kept), vectors_of(y),
                processors()},
               current_stream());
  return y;
}

at::Tensor biased_gelu_backward(const at::Tensor& d_y_of_any_strides,
                                const at::Tensor& product_of_any_strides, const at::Tensor& bias,
                                const KeptElements& kept, const at::Tensor& d_bias) {
  const c10::cuda::CUDAGuard on_device(bias.device());
  const at::Tensor d_y = d_y_of_any_strides.contiguous(), product = product_of_any_strides.contiguous();
  const MatrixShape shape = shape_of(product);
  const at::Tensor d_product = at::empty_like(d_y);
  const at::Tensor parts = parts_for(column_parts(shape, processors()), d_bias);
  gelu_backward({shape, vectors_of(d_y), vectors_of(product), vectors_of(bias), dropout_of(kept),
                 vectors_of(d_product), parts.data_ptr<float>(), static_cast<int>(parts.size(0))},
                current_stream());
  add_up(parts, d_bias);
  return d_product;
}

void add_columns(const at::Tensor& matrix_of_any_strides, const at::Tensor& sums) {
  const c10::cuda::CUDAGuard on_device(sums.device());
  const at::Tensor matrix = matrix_of_any_strides.contiguous();
  const MatrixShape shape = shape_of(matrix);
  const at::Tensor parts = parts_for(column_parts(shape, processors()), sums);
  join_columns({shape,
                {vectors_of(matrix)},
                1,
                /*joined=*/nullptr,
                parts.data_ptr<float>(),
                static_cast<int>(parts.size(0))},
               current_stream());
  add_up(parts, sums);
}

at::Tensor joined_columns(at::TensorList matrices, const at::Tensor& sums) {
  const c10::cuda::CUDAGuard on_device(sums.device());
  JoinColumns call = {};
  std::vector<at::Tensor> dense;
  for (const at::Tensor& matrix : matrices) {
    dense.push_back(matrix.contiguous());
    call.matrices[call.matrix_count++] = vectors_of(dense.back());
  }
  call.shape = shape_of(dense.front());
  call.shape.width *= call.matrix_count;
  const at::Tensor joined = at::empty({call.shape.rows, call.shape.width}, dense.front().options());
  const at::Tensor parts = parts_for(column_parts(call.shape, processors()), sums);
  call.joined = vectors_of(joined);
  call.parts = parts.data_ptr<float>();
  call.part_count = static_cast<int>(parts.size(0));
  join_columns(call, current_stream());
  add_up(parts, sums);
  return joined;
}

bool gpu_rows_fit(const at::Tensor& x, int64_t inner) {
  const int64_t width = x.size(-1);
  return x.is_cuda() && (x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16) && x.numel() > 0 &&
         width % kVectorWidth == 0 && width <= kMaxNormWidth && inner % kVectorWidth == 0;
}

}  // namespace adtrain::kernels
