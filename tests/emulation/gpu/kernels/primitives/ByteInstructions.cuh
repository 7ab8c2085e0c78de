#pragma once

#include <cstdint>

#include "emulation/ByteMatrices.h"
#include "emulation/WarpgroupMatrices.h"
#include "kernels/primitives/WarpgroupInstructions.cuh"

/// Stands in the place of src/kernels/primitives/ByteInstructions.cuh: the same instructions in the emulator.
namespace adtrain::kernels {

struct WholeSums {
  int32_t value[4];
};

inline void multiply_add_bytes(WholeSums& sums, const uint32_t (&left)[4], uint32_t right_first,
                               uint32_t right_second) {
  emulation::multiply_add_bytes(
      {sums.value, {left[0], left[1], left[2], left[3]}, {right_first, right_second}});
}
inline void start_byte_product(WholeSums (&sums)[32], uint64_t left, uint64_t right) {
  emulation::start_product({.sums = nullptr,
                            .columns = 8 * 32,
                            .left = {},
                            .right = right,
                            .across = false,
                            .shared_left = left,
                            .whole_sums = sums[0].value});
}
inline void take_sums(WholeSums (&)[32]) {}

}  // namespace adtrain::kernels
