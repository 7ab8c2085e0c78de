#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>

#include "kernels/KeptElements.h"
#include "kernels/primitives/KernelOperation.h"
#include "kernels/primitives/MatrixRows.h"

/// Conversions from tensors to the arguments of the kernels in MatrixRows.h.
namespace adtrain::kernels {

inline Vector* vectors_of(const at::Tensor& tensor) {
  return static_cast<Vector*>(tensor.data_ptr());
}

inline Vector* vectors_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? vectors_of(tensor) : nullptr;
}

inline ShortType type_of(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf ? ShortType::kHalf : ShortType::kBFloat16;
}

inline MatrixShape shape_of(const at::Tensor& x) {
  return {x.numel() / x.size(-1), static_cast<int>(x.size(-1)), type_of(x)};
}

/// Dense, and at an address that kernels read 16 bytes of.
inline at::Tensor readable(const at::Tensor& tensor) {
  constexpr uintptr_t kAlignment = 16;
  const at::Tensor dense = tensor.contiguous();
  return reinterpret_cast<uintptr_t>(dense.const_data_ptr()) % kAlignment == 0 ? dense : dense.clone();
}

inline int processors() {
  return at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
}

inline MatrixDropout dropout_of(const KeptElements& kept) {
  return {kept.bits.defined() ? kept.bits.const_data_ptr<uint8_t>() : nullptr, kept.scale};
}

}  // namespace adtrain::kernels
