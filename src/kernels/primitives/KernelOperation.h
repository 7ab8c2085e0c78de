#pragma once

#include <cstdint>

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/primitives/PartialSums.h"

/// What operations of autograd around our kernels have in common.
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

/// Room for `count` parts of `sums`, as thread blocks of a kernel write them.
inline at::Tensor parts_for(int count, const at::Tensor& sums) {
  return at::empty({count, sums.numel()}, sums.options());
}
/// Adds the parts to the sums, in their order.
inline void add_up(const at::Tensor& parts, const at::Tensor& sums) {
  add_parts(parts.const_data_ptr<float>(), static_cast<int>(parts.size(0)), parts.size(1),
            sums.data_ptr<float>(), current_stream());
}

/// What a forward pass has left for its backward pass under "remembered", beside the parameters; it goes with
/// the result.
template <class Remembered>
c10::intrusive_ptr<Remembered> taken_from(torch::autograd::AutogradContext* context) {
  auto remembered =
      c10::static_intrusive_pointer_cast<Remembered>(context->saved_data["remembered"].toCapsule());
  context->saved_data.clear();
  return remembered;
}

}  // namespace adtrain::kernels
