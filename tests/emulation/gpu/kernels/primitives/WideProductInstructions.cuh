#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>

#include "emulation/WarpgroupMatrices.h"
#include "kernels/primitives/Tile.cuh"

/// Stands in the place of src/kernels/primitives/WideProductInstructions.cuh: the same instructions in the
/// emulator. What each one does is said there.
namespace adtrain::kernels {

template <class Short, int Count>
void start_wide_product(Sums (&sums)[Count], const LeftFragment& left, uint64_t right) {
  static_assert(Count == 8 || Count == 16);
  emulation::start_product({sums[0].value,
                            8 * Count,
                            {left.part[0], left.part[1], left.part[2], left.part[3]},
                            right,
                            /*across=*/false,
                            0,
                            std::is_same_v<Short, __half>});
}

}  // namespace adtrain::kernels
