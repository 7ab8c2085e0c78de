#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Random.h"
#include "data/BatchSource.h"
#include "data/RandomColumns.h"
#include "data/ResidentColumns.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

/// The kernel, which runs in the emulator here, against what threads on the CPU cut.
TEST(CutColumns, GivesTheBatchesOfTheCpu) {
  const uint64_t seed = fresh_seed();
  RandomStream random(seed);
  int compared = 0, thinned = 0, spread = 0, packed = 0;
  for (int round = 0; round < 60; ++round) {
    const RandomColumns columns(random);
    SCOPED_TRACE(columns.text());
    HeldHistories held = columns.holding();
    held.load(own_bytes(held.bytes()), 1, [](auto&&...) { return std::string(); });
    try {
      const ColumnWindows windows = columns.windows(held, &held);
      const BatchSource::Feed feed = {
          .windows = windows,
          .order = SampleOrder(windows.samples(), 9),
          .share = {.rank = 1, .world_size = 2, .micro_batch = 5, .accumulation = 2},
          .first_sample = 60};
      ResidentColumns found(feed, at::kCPU);
      DataOptions options;
      options.num_workers = 0;
      const auto expected = BatchSource::create(feed, options, at::kCPU);
      for (int micro_step = 0; micro_step < 5; ++micro_step)
        ASSERT_EQ(difference(found.next(), expected->next()), "") << "micro-step " << micro_step;
      EXPECT_TRUE(found.on_device());
      ++compared;
      if (columns.shape.episode_stride > 1) ++thinned;
      if (columns.shape.weights == TaskWeights::kTasks) ++spread;
      if (windows.index().packed().size() > 0) ++packed;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("no window"));
    }
  }
  EXPECT_GT(compared, 30);
  EXPECT_GT(thinned, 0);
  EXPECT_GT(spread, 0);
  EXPECT_GT(packed, 0);
}

}  // namespace
}  // namespace adtrain
