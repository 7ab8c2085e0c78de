#pragma once

#include <cstdint>

#include "emulation/Emulator.h"

/// Stands in the place of src/kernels/primitives/TransposeInstruction.cuh: the same instruction in the
/// emulator.
namespace adtrain::kernels {

inline uint32_t transposed_matrix(uint32_t part) {
  const int lane = static_cast<int>(emulation::place.thread.x % emulation::kLanes);
  const int row = lane / 4, column = 2 * (lane % 4);  // of the transpose
  const auto element = [&](int from_row) {
    const uint32_t pair = __shfl_sync(emulation::kAllLanes, part, 4 * from_row + row / 2);
    return pair >> 16 * (row % 2) & 0xffff;
  };
  const uint32_t first = element(column);
  return first | element(column + 1) << 16;
}

}  // namespace adtrain::kernels
