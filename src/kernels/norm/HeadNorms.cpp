#include "kernels/norm/HeadNorms.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/MatrixOperation.h"
#include "kernels/norm/HeadNormKernels.h"

namespace adtrain::kernels {
namespace {

HeadNormShape shape_of(const at::Tensor& qkv, const HeadNorms& norms, double epsilon) {
  const bool layer = norms.queries.bias.defined();
  HeadNormShape shape = {.tokens = static_cast<int>(qkv.size(1) * qkv.size(3)),
                         .heads = static_cast<int>(qkv.size(2)),
                         .head_size = static_cast<int>(qkv.size(4)),
                         .layer = layer,
                         .type = type_of(qkv),
                         .epsilon = static_cast<float>(epsilon),
                         .weights = {vectors_of(norms.queries.weight), vectors_of(norms.keys.weight)},
                         .biases = {}};
  if (layer) {
    shape.biases[0] = vectors_of(norms.queries.bias);
    shape.biases[1] = vectors_of(norms.keys.bias);
  }
  return shape;
}

/// The first two of (2 or 3, B, heads, tokens, head size).
template <class Value>
HeadRows<Value> rows_of(const at::Tensor& heads) {
  return {{vectors_of(heads[0]), vectors_of(heads[1])},
          heads.stride(3) / kVectorWidth,
          heads.stride(2) / kVectorWidth};
}

}  // namespace

std::vector<at::Tensor> HeadNorms::parameters() const {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : {queries.weight, queries.bias, keys.weight, keys.bias}) {
    if (parameter.defined()) all.push_back(parameter);
  }
  return all;
}

HeadNorms HeadNorms::of(at::TensorList parameters) {
  if (parameters.empty()) return {};
  if (parameters.size() == 2) return {{parameters[0], {}}, {parameters[1], {}}};
  return {{parameters[0], parameters[1]}, {parameters[2], parameters[3]}};
}

at::Tensor normed_heads(const at::Tensor& qkv, const HeadNorms& norms, double epsilon) {
  const c10::cuda::CUDAGuard on_device(qkv.device());
  const at::Tensor normed =
      at::empty({qkv.size(1), qkv.size(3), 2, qkv.size(2), qkv.size(4)}, qkv.options().requires_grad(false))
          .permute({2, 0, 3, 1, 4});
  head_norm_forward(shape_of(qkv, norms, epsilon), rows_of<const Vector>(qkv), rows_of<Vector>(normed),
                    current_stream());
  return normed;
}

void normed_heads_backward(const at::Tensor& d_normed, const at::Tensor& qkv, const HeadNorms& norms,
                           double epsilon, const at::Tensor& d_qkv, const at::Tensor& d_parameters) {
  const c10::cuda::CUDAGuard on_device(qkv.device());
  const HeadNormShape shape = shape_of(qkv, norms, epsilon);
  const at::Tensor parts = parts_for(head_norm_backward_parts(shape, processors()), d_parameters);
  const auto stride = static_cast<int>(d_parameters.numel()) / static_cast<int>(norms.parameters().size());
  head_norm_backward(shape, rows_of<const Vector>(d_normed), rows_of<const Vector>(qkv),
                     rows_of<Vector>(d_qkv), parts.data_ptr<float>(), static_cast<int>(parts.size(0)), stride,
                     current_stream());
  add_up(parts, d_parameters);
}

}  // namespace adtrain::kernels
