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

inline double half_at(uint32_t pair, int shift) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(pair >> shift)));
}
/// Exact in double, and then rounded once.
inline uint32_t multiplied_half_plus(uint32_t left, uint32_t right, uint32_t added) {
  const auto sum = [&](int shift) {
    const double exact = half_at(left, shift) * half_at(right, shift) + half_at(added, shift);
    return uint32_t{__half_as_ushort(__double2half(exact))} << shift;
  };
  return sum(0) | sum(16);
}
inline uint32_t multiplied_half(uint32_t left, uint32_t right) {
  constexpr uint32_t kMinusZeros = 0x80008000u;  // so that −0 remains
  return multiplied_half_plus(left, right, kMinusZeros);
}

}  // namespace adtrain::kernels
