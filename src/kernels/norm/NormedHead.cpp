#include "kernels/norm/NormedHead.h"

#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/MatrixOperation.h"
#include "kernels/norm/NormEpsilon.h"
#include "kernels/norm/NormedHeadKernel.h"

namespace adtrain::kernels {

bool normed_head_fits(const at::Tensor& x, int64_t outputs) {
  constexpr int64_t kMost = 2048;  // each of them reads a row and the norm's parameters
  return x.scalar_type() != at::kFloat && x.size(-1) % kVectorWidth == 0 &&
         x.numel() / x.size(-1) * outputs <= kMost;
}

at::Tensor normed_head(const at::Tensor& x_of_any_strides, const NormWeights& norm,
                       const at::Tensor& weight_of_any_strides, const at::Tensor& bias) {
  const c10::cuda::CUDAGuard on_device(x_of_any_strides.device());
  const at::Tensor x = readable(x_of_any_strides), weight = readable(weight_of_any_strides);
  const NormWeights parameters = {norm.weight.defined() ? readable(norm.weight) : norm.weight,
                                  norm.bias.defined() ? readable(norm.bias) : norm.bias};
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  const at::Tensor logits = at::empty(sizes, x.options().dtype(at::kFloat).requires_grad(false));
  normed_head({.shape = shape_of(x),
               .x = vectors_of(x),
               .norm_weight = vectors_or_null(parameters.weight),
               .norm_bias = vectors_or_null(parameters.bias),
               .epsilon = static_cast<float>(kNormEpsilon),
               .outputs = static_cast<int>(weight.size(0)),
               .weight = vectors_of(weight),
               .bias = bias.const_data_ptr(),
               .logits = logits.data_ptr<float>()},
              current_stream());
  return logits;
}

}  // namespace adtrain::kernels
