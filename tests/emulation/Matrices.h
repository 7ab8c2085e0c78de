#pragma once

#include <cstdint>
#include <cstring>

#include "emulation/Emulator.h"

/// What warps do with matrices of 8 × 8 values of 16 bit: "mma", "ldmatrix" and "stmatrix" of the PTX
/// ISA.
namespace adtrain::emulation {

/// The two values of a pair.
inline float low_of(uint32_t pair) {
  const uint32_t bits = pair << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline float high_of(uint32_t pair) {
  return low_of(pair >> 16);
}

/// A lane's part of sums (16 × 8) += left (16 × 16 or 8) · right.
struct Product {
  float* sums;
  uint32_t left[4], right[2];
};
void multiply_add(Product own);
void multiply_add_8(Product own);

/// Count = 2 or 4 matrices, the lane's row being that which stands at `row_of_lane` in shared memory.
template <int Count, bool Transposed>
void load_matrices(uint32_t* part, uint32_t row_of_lane);
void store_matrices(uint32_t row_of_lane, const uint32_t (&part)[4]);

}  // namespace adtrain::emulation
