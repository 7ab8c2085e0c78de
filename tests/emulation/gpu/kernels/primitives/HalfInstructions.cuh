#pragma once

#include <cstdint>

#include <cuda_fp16.h>

#include "emulation/HalfMatrices.h"

/// Stands in the place of src/kernels/primitives/HalfInstructions.cuh: the same instructions in the emulator.
namespace adtrain::kernels {

inline void multiply_add_half(float (&sums)[4], const uint32_t (&left)[4], uint32_t right_low,
                              uint32_t right_high) {
  emulation::multiply_add_half({sums, {left[0], left[1], left[2], left[3]}, {right_low, right_high}});
}

inline uint32_t multiplied_half(uint32_t left, uint32_t right) {
  const auto half = [](uint32_t bits) { return __half2float(__ushort_as_half(static_cast<uint16_t>(bits))); };
  const auto product = [&](int shift) {
    return uint32_t{__half_as_ushort(__float2half_rn(half(left >> shift) * half(right >> shift)))} << shift;
  };
  return product(0) | product(16);
}

}  // namespace adtrain::kernels
