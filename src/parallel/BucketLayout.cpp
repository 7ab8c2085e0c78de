#include "parallel/BucketLayout.h"

namespace adtrain {

BucketLayout::BucketLayout(const FlatLayout& layout, const ReducerOptions& options) {
  int64_t end = layout.total();  // of the bucket being filled
  size_t end_of_bucket = layout.tensors();
  for (size_t index = layout.tensors(); index-- > 0;) {
    const int64_t begin = layout.offset(index);  // of the tensors from this one on
    const int64_t limit = buckets_.empty() ? options.first_bucket_bytes : options.bucket_bytes;
    if ((end - begin) * static_cast<int64_t>(sizeof(float)) >= limit || index == 0) {
      buckets_.push_back({.part = {begin, end - begin}, .first = index, .end = end_of_bucket});
      end = begin;
      end_of_bucket = index;
    }
  }
}

int64_t BucketLayout::shard_size(int64_t rank, int64_t world_size) const {
  int64_t size = 0;
  for (const Bucket& bucket : buckets_) size += part_of(bucket.part.size, rank, world_size).size;
  return size;
}

}  // namespace adtrain
