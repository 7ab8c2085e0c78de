#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>

#include "emulation/Matrices.h"
#include "emulation/WarpgroupMatrices.h"
#include "kernels/primitives/Tile.cuh"

/// Stands in the place of src/kernels/primitives/WideProductInstructions.cuh: the same instructions in the
/// emulator. What each one does is said there.
namespace adtrain::kernels {

template <class Short, int Count>
void start_wide_product(Sums (&sums)[Count], const LeftFragment& left, uint64_t right) {
  static_assert(Count == 4 || Count == 8 || Count == 16);
  emulation::start_product({sums[0].value,
                            8 * Count,
                            {left.part[0], left.part[1], left.part[2], left.part[3]},
                            right,
                            /*across=*/false,
                            0,
                            std::is_same_v<Short, __half>});
}

inline void meeting_barrier(int id, int threads) {
  emulation::barrier(id, threads);
}

inline void store_matrices_transposed(uint32_t row_of_lane, const uint32_t (&part)[4]) {
  emulation::store_matrices_transposed(row_of_lane, part);
}

}  // namespace adtrain::kernels
