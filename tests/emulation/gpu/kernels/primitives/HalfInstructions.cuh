#pragma once

#include <cstdint>

#include "emulation/HalfMatrices.h"

/// Stands in the place of src/kernels/primitives/HalfInstructions.cuh: the same instructions in the emulator.
namespace adtrain::kernels {

inline void multiply_add_half(float (&sums)[4], const uint32_t (&left)[4], uint32_t right_low,
                              uint32_t right_high) {
  emulation::multiply_add_half({sums, {left[0], left[1], left[2], left[3]}, {right_low, right_high}});
}

}  // namespace adtrain::kernels
