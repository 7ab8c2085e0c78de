#pragma once

#include <cstdint>

#include <cuda_fp16.h>

/// The products of Instructions.cuh for fp16, likewise with a counterpart in tests/emulation/.
namespace adtrain::kernels {

/// sums (16 × 8) += left (16 × 16) · right (16 × 8), of fp16 elements.
__device__ inline void multiply_add_half(float (&sums)[4], const uint32_t (&left)[4], uint32_t right_low,
                                         uint32_t right_high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_low), "r"(right_high));
}

/// The products of two pairs of fp16 elements, rounded.
__device__ inline uint32_t multiplied_half(uint32_t left, uint32_t right) {
  const __half2 both =
      __hmul2(reinterpret_cast<const __half2&>(left), reinterpret_cast<const __half2&>(right));
  return reinterpret_cast<const uint32_t&>(both);
}
/// The same plus a third pair, rounded once.
__device__ inline uint32_t multiplied_half_plus(uint32_t left, uint32_t right, uint32_t added) {
  const __half2 sum = __hfma2(reinterpret_cast<const __half2&>(left), reinterpret_cast<const __half2&>(right),
                              reinterpret_cast<const __half2&>(added));
  return reinterpret_cast<const uint32_t&>(sum);
}

}  // namespace adtrain::kernels
