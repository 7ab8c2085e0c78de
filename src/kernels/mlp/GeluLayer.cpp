#include "kernels/mlp/GeluLayer.h"

#include <cstdint>
#include <utility>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/MatrixOperation.h"
#include "kernels/activation/Activation.h"
#include "kernels/mlp/GeluProducts.h"
#include "kernels/primitives/DeviceTraits.h"

namespace adtrain::kernels {
namespace {

bool fits(const at::Tensor& x, const at::Tensor& weight, const MatrixDropout& dropout, GeluKind kind) {
  constexpr double kLarge = 1e9;
  const int64_t inner = weight.size(0), in = weight.size(1), rows = x.numel() / in;
  const auto operations = 2.0 * static_cast<double>(x.numel()) * static_cast<double>(inner);
  if (operations < kLarge || inner % kVectorWidth != 0 || in % kVectorWidth != 0 ||
      !DeviceTraits::of(x.device()).multiplies_by_warpgroups()) {
    return false;
  }
  const bool drops = dropout.keep != nullptr,
             aligned = reinterpret_cast<uintptr_t>(dropout.keep) % sizeof(Vector) == 0;
  if (drops && !(aligned && inner % kGeluTileColumns == 0 && kind == GeluKind::kExact)) return false;
  return gelu_product_tiles(rows, inner) >= processors();  // libraries have smaller tiles, for all to be busy
}

}  // namespace

GeluLayer::GeluLayer(const at::Tensor& x_of_any_shape, const at::Tensor& weight, const at::Tensor& bias,
                     KeptElements kept, Autotuning autotuning, GeluKind kind)
    : kept_(std::move(kept)), kind_(kind) {
  const c10::cuda::CUDAGuard on_device(x_of_any_shape.device());
  const at::Tensor x = matrix(x_of_any_shape);
  in_epilogue_ = fits(x, weight, dropout_of(kept_), kind);
  if (!in_epilogue_) {
    for_backward_ = product(x, weight, {}, autotuning);
    y_ = biased_gelu(for_backward_, bias, kept_, kind);
    return;
  }
  y_ = at::empty({x.size(0), weight.size(0)}, x.options());
  const MatrixShape shape = shape_of(y_);
  for_backward_ = at::empty({gelu_slopes_bytes(shape)}, x.options().dtype(at::kByte));
  gelu_product({shape, static_cast<int>(x.size(1)), vectors_of(x), vectors_of(weight), vectors_of(bias), kind,
                dropout_of(kept_), for_backward_.data_ptr(), vectors_of(y_), processors()},
               current_stream());
}

at::Tensor GeluLayer::backward(const at::Tensor& d_out_of_any_shape, const at::Tensor& next_weight,
                               const at::Tensor& bias, const at::Tensor& d_bias) const {
  const at::Tensor d_out = matrix(d_out_of_any_shape);
  if (!in_epilogue_)
    return biased_gelu_backward(input_gradient(d_out, next_weight), for_backward_, bias, kept_, d_bias,
                                kind_);
  const c10::cuda::CUDAGuard on_device(d_out.device());
  const at::Tensor d_sum = at::empty_like(y_);
  const MatrixShape shape = shape_of(d_sum);
  const at::Tensor parts = parts_for(gelu_product_parts(shape), d_bias);
  gelu_product_gradient(
      {shape, static_cast<int>(d_out.size(1)), vectors_of(d_out), vectors_of(next_weight),
       for_backward_.data_ptr(), kept_.scale, vectors_of(d_sum), parts.data_ptr<float>(), processors()},
      current_stream());
  add_up(parts, d_bias);
  return d_sum;
}

}  // namespace adtrain::kernels
