#pragma once

#include <cstdint>

namespace adtrain {

/// Elements begin … begin + size − 1 of a tensor.
struct Part {
  int64_t begin = 0;
  int64_t size = 0;
};

/// Rank `rank`'s part of a tensor of `elements`, which is divided among the ranks in their order. All parts
/// begin at multiples of 64 elements, for kernels that load vectors, and are of one size. The last rank has
/// in addition what remains, less than 64 elements a rank.
inline Part part_of(int64_t elements, int64_t rank, int64_t world_size) {
  constexpr int64_t kAlignment = 64;
  const int64_t equal = elements / kAlignment / world_size * kAlignment, begin = rank * equal;
  return {begin, rank + 1 == world_size ? elements - begin : equal};
}

}  // namespace adtrain
