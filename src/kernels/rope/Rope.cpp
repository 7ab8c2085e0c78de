#include "kernels/rope/Rope.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/MatrixOperation.h"
#include "kernels/rope/RopeKernels.h"

namespace adtrain::kernels {

namespace {

constexpr int64_t kKinds = 3;  ///< queries, keys, values

/// `heads` (B, tokens, heads, …, head size).
RopeShape rope_shape(const at::Tensor& heads, const Rotary& rotary) {
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

bool rope_fits(int64_t head_size) {
  return head_size % (2 * kVectorWidth) == 0;
}

void apply_rope(const at::Tensor& projected, const Rotary& rotary) {
  const c10::cuda::CUDAGuard on_device(projected.device());
  apply_rope(rope_shape(projected, rotary), vectors_of(projected), current_stream());
}

at::Tensor apply_rope_backward(const at::Tensor& d_queries_of_any_strides,
                               const at::Tensor& d_keys_of_any_strides,
                               const at::Tensor& d_values_of_any_strides, const Rotary& rotary) {
  const c10::cuda::CUDAGuard on_device(d_keys_of_any_strides.device());
  const at::Tensor d_queries = d_queries_of_any_strides.contiguous(),
                   d_keys = d_keys_of_any_strides.contiguous(),
                   d_values = d_values_of_any_strides.contiguous();
  const at::Tensor d_projected =
      at::empty({d_keys.size(0), d_keys.size(1), d_keys.size(2), kKinds, d_keys.size(3)}, d_keys.options());
  apply_rope_backward({rope_shape(d_keys, rotary), vectors_of(d_queries), vectors_of(d_keys),
                       vectors_of(d_values), static_cast<int>(d_queries.size(1)), vectors_of(d_projected)},
                      current_stream());
  return d_projected;
}

}  // namespace adtrain::kernels
