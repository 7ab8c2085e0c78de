#include "parallel/BucketLayout.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "support/FreshSeed.h"

namespace adtrain {
namespace {

TEST(BucketLayout, BucketsCoverTheBufferFromItsEndAndHoldWholeTensors) {
  std::mt19937 random(fresh_seed());
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<int64_t> sizes(1 + random() % 40);
    for (int64_t& size : sizes) size = static_cast<int64_t>(1 + random() % 5000);
    const FlatLayout layout(sizes);
    const ReducerOptions options = {.bucket_bytes = static_cast<int64_t>(1 + random() % 60'000),
                                    .first_bucket_bytes = static_cast<int64_t>(1 + random() % 4000)};
    const BucketLayout buckets(layout, options);
    int64_t end = layout.total();
    size_t tensors = sizes.size();
    for (const auto& [part, first, behind] : buckets.buckets()) {
      EXPECT_EQ(part.begin + part.size, end);
      EXPECT_EQ(part.begin, layout.offset(first));
      EXPECT_EQ(behind, tensors);
      const bool is_first = end == layout.total();
      const int64_t limit = is_first ? options.first_bucket_bytes : options.bucket_bytes;
      EXPECT_TRUE(part.begin == 0 || 4 * part.size >= limit) << part.size;
      end = part.begin;
      tensors = first;
    }
    EXPECT_EQ(end, 0);
    EXPECT_EQ(tensors, 0U);

    for (const int64_t world_size : {1, 2, 3, 8}) {
      int64_t sum = 0;
      for (int64_t rank = 0; rank < world_size; ++rank) {
        sum += buckets.shard_size(rank, world_size);
        EXPECT_LE(buckets.shard_size(rank, world_size), buckets.shard_size(world_size - 1, world_size));
      }
      EXPECT_EQ(sum, layout.total()) << world_size << " ranks";
    }
  }
}

}  // namespace
}  // namespace adtrain
