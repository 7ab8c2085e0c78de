#pragma once

#include <cstdint>

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/primitives/PartialSums.h"

/// What autograd operations around our kernels share.
namespace adtrain::kernels {

inline __nv_bfloat16* values_of(const at::Tensor& tensor) {
  return static_cast<__nv_bfloat16*>(tensor.data_ptr());
}

inline uint32_t* words_of(const at::Tensor& bits) {
  return static_cast<uint32_t*>(bits.data_ptr());
}

inline cudaStream_t current_stream() {
  return c10::cuda::getCurrentCUDAStream();
}

/// Memory for `count` partial sums of the size of `sums`, one for each thread block of a kernel.
inline at::Tensor parts_for(int count, const at::Tensor& sums) {
  return at::empty({count, sums.numel()}, sums.options());
}
/// The partial sums, for the next kernel to add them to `sums`.
inline UnaddedParts unadded(const at::Tensor& parts, const at::Tensor& sums) {
  return {parts.const_data_ptr<float>(), static_cast<int>(parts.size(0)), parts.size(1),
          sums.data_ptr<float>()};
}
/// Adds the partial sums to `sums`, in their order.
inline void add_up(const at::Tensor& parts, const at::Tensor& sums) {
  add_parts(parts.const_data_ptr<float>(), static_cast<int>(parts.size(0)), parts.size(1),
            sums.data_ptr<float>(), current_stream());
}

/// Returns what the forward pass stored under "remembered" for the backward pass, besides the parameters, and
/// removes it from the context. It is freed with the returned pointer.
template <class Remembered>
c10::intrusive_ptr<Remembered> taken_from(torch::autograd::AutogradContext* context) {
  auto remembered =
      c10::static_intrusive_pointer_cast<Remembered>(context->saved_data["remembered"].toCapsule());
  context->saved_data.clear();
  return remembered;
}

}  // namespace adtrain::kernels
