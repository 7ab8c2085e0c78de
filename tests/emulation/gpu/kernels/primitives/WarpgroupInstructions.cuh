#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>

#include "emulation/WarpgroupMatrices.h"
#include "kernels/primitives/Tile.cuh"

/// Stands in the place of src/kernels/primitives/WarpgroupInstructions.cuh: the same instructions in the
/// emulator. What each one does is said there.
namespace adtrain::kernels {

inline void begin_products() {}
inline void show_to_products() {}
template <int Count>
void hold(LeftFragment (&)[Count]) {}
inline void close_products() {
  emulation::close_products();
}
template <int Left>
void products_arrived() {
  emulation::wait_for_products(Left);
}
template <int Count>
void take_sums(Sums (&)[Count]) {}

template <class Short, bool Across, int Count>
void start_product(Sums (&sums)[Count], const LeftFragment& left, uint64_t right) {
  emulation::start_product({sums[0].value,
                            8 * Count,
                            {left.part[0], left.part[1], left.part[2], left.part[3]},
                            right,
                            Across,
                            0,
                            std::is_same_v<Short, __half>});
}

template <class Short, bool Down, bool Across, int Count>
void start_product(Sums (&sums)[Count], uint64_t left, uint64_t right) {
  emulation::start_product(
      {sums[0].value, 8 * Count, {}, right, Across, left, std::is_same_v<Short, __half>, Down});
}

}  // namespace adtrain::kernels
