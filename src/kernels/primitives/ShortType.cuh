#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/primitives/MatrixRows.h"

/// Numbers of either 16-bit type as floats.
namespace adtrain::kernels {

template <class Short>
__device__ float2 unpacked(unsigned pair) {
  if constexpr (std::is_same_v<Short, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  } else {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U)};
  }
}

template <class Short>
__device__ unsigned packed(float first, float second) {
  if constexpr (std::is_same_v<Short, __half>) {
    const __half2 pair = __floats2half2_rn(first, second);
    return reinterpret_cast<const unsigned&>(pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const unsigned&>(pair);
  }
}

/// The number that these bits stand for.
template <class Short>
__device__ float value_of(__nv_bfloat16 bits) {
  return unpacked<Short>(__bfloat16_as_ushort(bits)).x;
}

/// The bits of 1.
template <class Short>
constexpr uint32_t kOneBits = std::is_same_v<Short, __half> ? 0x3c00 : 0x3f80;
/// A pair of them.
template <class Short>
constexpr uint32_t kTwoOnes = kOneBits<Short> | kOneBits<Short> << 16;

/// Calls launch(Short()) with the CUDA type that `type` stands for.
template <class Launch>
void with_type(ShortType type, Launch launch) {
  if (type == ShortType::kHalf) {
    launch(__half());
  } else {
    launch(__nv_bfloat16());
  }
}

}  // namespace adtrain::kernels
