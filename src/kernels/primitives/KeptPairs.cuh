#pragma once

#include <cstdint>

#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

namespace adtrain::kernels {

/// Dropout of a lane's pairs in 32 columns: two columns in each 8. A bit of the word belongs to one column.
class KeptPairs {
 public:
  KeptPairs() = default;
  __device__ KeptPairs(uint32_t word, unsigned lane)
      : first_(word << (7 - lane_place(lane).column)), second_(word << (6 - lane_place(lane).column)) {}

  /// The pair in columns 8 · eight + {column, column + 1}, with zeros for dropped elements. Their mask bits
  /// are the highest bits of byte `eight`.
  __device__ uint32_t kept(uint32_t pair, int eight) const {
    return pair & pair_mask(first_, second_, eight);
  }
  /// The same with elements of `other` for dropped ones.
  __device__ uint32_t kept_or(uint32_t pair, uint32_t other, int eight) const {
    const uint32_t mask = pair_mask(first_, second_, eight);
    return (pair & mask) | (other & ~mask);
  }

 private:
  uint32_t first_, second_;
};

}  // namespace adtrain::kernels
