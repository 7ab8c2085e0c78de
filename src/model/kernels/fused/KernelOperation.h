#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <torch/csrc/autograd/custom_function.h>

/// What operations of autograd around our kernels have in common.
namespace adtrain::kernels {

inline __nv_bfloat16* values_of(const at::Tensor& tensor) {
  return static_cast<__nv_bfloat16*>(tensor.data_ptr());
}

inline cudaStream_t current_stream() {
  return c10::cuda::getCurrentCUDAStream();
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
