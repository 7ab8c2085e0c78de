#include "model/kernels/GpuRows.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#include "base/FlatLayout.h"
#include "model/kernels/PartialSums.h"
#include "model/kernels/RowKernels.h"

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

/// Rows of partial sums, each of `size` numbers.
at::Tensor parts_for(int count, int64_t size, const at::Tensor& like) {
  return at::empty({count, size}, like.options().dtype(at::kFloat).requires_grad(false));
}

void add_up(const at::Tensor& parts, const at::Tensor& sums) {
  add_parts(parts.const_data_ptr<float>(), static_cast<int>(parts.size(0)), parts.size(1),
            sums.data_ptr<float>(), at::cuda::getCurrentCUDAStream());
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
               at::cuda::getCurrentCUDAStream());
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
  const at::Tensor parts = parts_for(norm_backward_parts(shape, processors()), 3 * stride, d_y);
  norm_backward({shape, vectors_of(d_y), vectors_of(sum.normalised), vectors_of(weight),
                 sum.inverse_deviation.const_data_ptr<float>(), dropout_of(kept), vectors_of(d_x),
                 vectors_of(d_product), parts.data_ptr<float>(), static_cast<int>(parts.size(0)),
                 static_cast<int>(stride)},
                at::cuda::getCurrentCUDAStream());
  add_up(parts, d_parameters);
  return {d_x, d_product};
}

at::Tensor biased_gelu(const at::Tensor& product_of_any_strides, const at::Tensor& bias,
                       const KeptElements& kept) {
  const c10::cuda::CUDAGuard on_device(bias.device());
  const at::Tensor product = product_of_any_strides.contiguous(), y = at::empty_like(product);
  gelu_forward({shape_of(product), vectors_of(product), vectors_of(bias), dropout_of(kept), vectors_of(y),
                processors()},
               at::cuda::getCurrentCUDAStream());
  return y;
}

at::Tensor biased_gelu_backward(const at::Tensor& d_y_of_any_strides,
                                const at::Tensor& product_of_any_strides, const at::Tensor& bias,
                                const KeptElements& kept, const at::Tensor& d_bias) {
  const c10::cuda::CUDAGuard on_device(bias.device());
  const at::Tensor d_y = d_y_of_any_strides.contiguous(), product = product_of_any_strides.contiguous();
  const MatrixShape shape = shape_of(product);
  const at::Tensor d_product = at::empty_like(d_y);
  const at::Tensor parts = parts_for(column_parts(shape, processors()), shape.width, d_y);
  gelu_backward({shape, vectors_of(d_y), vectors_of(product), vectors_of(bias), dropout_of(kept),
                 vectors_of(d_product), parts.data_ptr<float>(), static_cast<int>(parts.size(0))},
                at::cuda::getCurrentCUDAStream());
  add_up(parts, d_bias);
  return d_product;
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
  const at::Tensor parts = parts_for(column_parts(call.shape, processors()), call.shape.width, joined);
  call.joined = vectors_of(joined);
  call.parts = parts.data_ptr<float>();
  call.part_count = static_cast<int>(parts.size(0));
  join_columns(call, at::cuda::getCurrentCUDAStream());
  add_up(parts, sums);
  return joined;
}

bool gpu_rows_fit(const at::Tensor& x, int64_t inner) {
  const int64_t width = x.size(-1);
  return x.is_cuda() && (x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16) && x.numel() > 0 &&
         width % kVectorWidth == 0 && width <= kMaxNormWidth && inner % kVectorWidth == 0;
}

}  // namespace adtrain::kernels
