#pragma once

#include <cstdint>

namespace adtrain::emulation {

/// A lane's part of sums (16 × 8) += left (16 × 32) · right (32 × 8) of signed bytes, "mma.m16n8k32" of the
/// PTX ISA.
struct ByteProduct {
  int32_t* sums;
  uint32_t left[4], right[2];
};
void multiply_add_bytes(ByteProduct own);

}  // namespace adtrain::emulation
