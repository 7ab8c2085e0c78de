#include "model/kernels/rows/GpuRows.h"

#include <numeric>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#include "base/FlatLayout.h"
#include "model/kernels/KernelOperation.h"
#include "model/kernels/gpu/DeviceSupport.h"
#include "model/kernels/rows/RowKernels.h"

namespace adtrain::kernels {
namespace {

constexpr int64_t kKinds = 3;  ///< queries, keys, values

Vector* vectors_of(const at::Tensor& tensor) {
  return static_cast<Vector*>(tensor.data_ptr());
}

ShortType type_of(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf ? ShortType::kHalf : ShortType::kBFloat16;
}

MatrixShape shape_of(const at::Tensor& x) {
  return {x.numel() / x.size(-1), static_cast<int>(x.size(-1)), type_of(x)};
}

int processors() {
  return at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
}

DropoutBits dropout_of(const KeptElements& kept) {
  return {kept.bits.defined() ? kept.bits.const_data_ptr<uint8_t>() : nullptr, kept.scale};
}

/// rms_normed_backward, or where the input is a sum rms_normed_sum_backward.
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

/// `heads` (B, tokens, heads, …, head size).
TurnedShape turned_shape(const at::Tensor& heads, const Rotary& rotary) {
  return {heads.size(0) * heads.size(1),
          static_cast<int>(heads.size(1)),
          static_cast<int>(heads.size(2)),
          static_cast<int>(heads.size(-1)),
          type_of(heads),
          rotary.cosines.const_data_ptr<float>(),
          rotary.sines.const_data_ptr<float>(),
          static_cast<int>(heads.size(1) - rotary.cosines.size(0)),
          processors()};
}

}  // namespace

KeptElements kept_elements(const BlockPass& pass, int64_t count, int64_t number) {
  return kept_elements(pass, at::IntArrayRef(count), number).front();
}

std::vector<KeptElements> kept_elements(const BlockPass& pass, at::IntArrayRef counts, int64_t number) {
  std::vector<KeptElements> kept(counts.size());
  if (pass.keep_hidden.always()) return kept;
  constexpr int kWordBits = 32;
  std::vector<int64_t> words;
  for (const int64_t count : counts) words.push_back((count + kWordBits - 1) / kWordBits);
  const int64_t total = std::accumulate(words.begin(), words.end(), int64_t{0});
  const std::vector<at::Tensor> bits = pass.hidden_bits(total, number).split_with_sizes(words);
  for (size_t k = 0; k < kept.size(); ++k) kept[k] = {bits[k].view(at::kByte), pass.keep_hidden.scale()};
  return kept;
}

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

bool turning_fits(int64_t head_size) {
  return head_size % (2 * kVectorWidth) == 0;
}

void turn_heads(const at::Tensor& projected, const Rotary& rotary) {
  const c10::cuda::CUDAGuard on_device(projected.device());
  turn_heads(turned_shape(projected, rotary), vectors_of(projected), current_stream());
}

at::Tensor turn_heads_back(const at::Tensor& d_queries_of_any_strides,
                           const at::Tensor& d_keys_of_any_strides, const at::Tensor& d_values_of_any_strides,
                           const Rotary& rotary) {
  const c10::cuda::CUDAGuard on_device(d_keys_of_any_strides.device());
  const at::Tensor d_queries = d_queries_of_any_strides.contiguous(),
                   d_keys = d_keys_of_any_strides.contiguous(),
                   d_values = d_values_of_any_strides.contiguous();
  const at::Tensor d_projected =
      at::empty({d_keys.size(0), d_keys.size(1), d_keys.size(2), kKinds, d_keys.size(3)}, d_keys.options());
  turn_heads_back({turned_shape(d_keys, rotary), vectors_of(d_queries), vectors_of(d_keys),
                   vectors_of(d_values), static_cast<int>(d_queries.size(1)), vectors_of(d_projected)},
                  current_stream());
  return d_projected;
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

bool gpu_rows_fit(const at::Device& device, at::ScalarType type, int64_t width, int64_t inner) {
  return runs_row_kernels(device) && (type == at::kHalf || type == at::kBFloat16) &&
         width % kVectorWidth == 0 && width <= kMaxNormWidth && inner % kVectorWidth == 0;
}

}  // namespace adtrain::kernels
