#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/FlatLayout.h"
#include "collectives/Part.h"
#include "launch/DistributedOptions.h"

namespace adtrain {

/// How a flat buffer is divided into buckets, from its end to its beginning: about the order in which
/// gradients become ready. A bucket holds whole tensors, with the gaps between them, so that it begins and
/// ends at multiples of 64 elements. Immutable.
class BucketLayout {
 public:
  struct Bucket {
    Part part;         ///< of the flat buffer
    size_t first = 0;  ///< its tensors: first … end − 1
    size_t end = 0;
  };
  /// The first bucket, and each later one, ends with the tensor with which it reaches its size in `options`.
  BucketLayout(const FlatLayout& layout, const ReducerOptions& options);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Elements of all parts that rank `rank` has: of each bucket its part_of().
  int64_t shard_size(int64_t rank, int64_t world_size) const;

 private:
  std::vector<Bucket> buckets_;
};

}  // namespace adtrain
