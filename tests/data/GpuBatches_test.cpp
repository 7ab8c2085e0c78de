#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Gpu.h"
#include "base/Random.h"
#include "data/BatchSource.h"
#include "data/HistorySet.h"
#include "data/RandomColumns.h"
#include "data/TransitionWindows.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

struct Cut {
  std::string name;
  WindowShape shape;
  float borrowing = 0;  ///< share
};

/// What threads on the CPU cut is the definition of what is right.
class GpuBatches : public testing::TestWithParam<Cut> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }

  void expect_the_cpus_batches(HistoriesOnGpu where) {
    const HistorySet histories = HistorySet::random(7, GetParam().shape.steps, {9, 5}, 3);
    const TransitionWindows windows(
        histories, GetParam().shape,
        {.share = GetParam().borrowing, .streams = 2, .paying_cells = {4, 4, 0, 8, 3, 1, 6, 6}});
    const BatchSource::Feed feed = {
        .windows = windows,
        .order = SampleOrder(windows.samples(), 9),
        .share = {.rank = 1, .world_size = 2, .micro_batch = 33, .accumulation = 3},
        .first_sample = 5 * 198};
    DataOptions options;
    options.histories_on_gpu = where;
    const auto on_gpu = BatchSource::create(feed, options, at::Device(at::kCUDA, 0));
    const auto on_cpu = BatchSource::create(feed, options, at::kCPU);
    EXPECT_EQ(on_gpu->on_device(), where == HistoriesOnGpu::kOn);
    for (int micro_step = 0; micro_step < 60; ++micro_step) {
      const Batch found = on_gpu->next().to(at::kCPU), expected = on_cpu->next();
      for (const auto part : {&Batch::states, &Batch::actions, &Batch::rewards, &Batch::next_states,
                              &Batch::previous, &Batch::current, &Batch::query_state, &Batch::query_action}) {
        ASSERT_EQ((found.*part).defined(), (expected.*part).defined());
        if ((found.*part).defined()) {
          ASSERT_TRUE((found.*part).equal(expected.*part)) << "micro-step " << micro_step;
        }
      }
    }
  }
};

TEST_P(GpuBatches, CutOnTheGpuAreThoseCutOnTheCpu) {
  expect_the_cpus_batches(HistoriesOnGpu::kOn);
}

TEST_P(GpuBatches, CopiedToTheGpuAreThoseCutOnTheCpu) {
  expect_the_cpus_batches(HistoriesOnGpu::kOff);
}

INSTANTIATE_TEST_SUITE_P(
    Cuts, GpuBatches,
    testing::Values(
        Cut{"Plain", {.steps = 200, .horizon = 20, .length = 30}},
        Cut{"WithBorrowedEpisodes", {.steps = 200, .horizon = 5, .episode_stride = 3, .length = 30}, 0.7F},
        Cut{"EveryThirdEpisode", {.steps = 200, .horizon = 20, .episode_stride = 3, .length = 30}},
        Cut{"Compressed", {.steps = 195, .horizon = 15, .region = 10}},
        Cut{"CompressedEverySecondEpisode", {.steps = 210, .horizon = 15, .episode_stride = 2, .region = 10}},
        Cut{"WholeRegions", {.steps = 195, .horizon = 15, .region = 10, .whole_regions_only = true}}),
    [](const auto& tested) { return tested.param.name; });

/// Of any space; what cuts them on the CPU reads the source itself.
TEST(GpuColumnBatches, OfAnySpaceAreThoseCutOnTheCpu) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const uint64_t seed = fresh_seed();
  RandomStream random(seed);
  int compared = 0;
  for (int round = 0; round < 200; ++round) {
    const RandomColumns columns(random);
    SCOPED_TRACE(columns.text());
    HeldHistories held = columns.holding();
    held.load(own_bytes(held.bytes()), 1, [](auto&&...) { return std::string(); });
    try {
      const ColumnWindows on_gpu = columns.windows(held, &held), on_cpu = columns.windows(columns.source);
      const auto batches = [&](const ColumnWindows& windows, at::Device device) {
        return BatchSource::create(
            {.windows = windows,
             .order = SampleOrder(windows.samples(), 9),
             .share = {.rank = 1, .world_size = 2, .micro_batch = 33, .accumulation = 3},
             .first_sample = 5 * 198},
            DataOptions(), device);
      };
      const auto found = batches(on_gpu, at::Device(at::kCUDA, 0)), expected = batches(on_cpu, at::kCPU);
      const auto copied = batches(on_cpu, at::Device(at::kCUDA, 0));
      EXPECT_TRUE(found->on_device());
      EXPECT_FALSE(copied->on_device());
      for (int micro_step = 0; micro_step < 7; ++micro_step) {
        const Batch right = expected->next();
        ASSERT_EQ(difference(found->next().to(at::kCPU), right), "") << "micro-step " << micro_step;
        ASSERT_EQ(difference(copied->next().to(at::kCPU), right), "") << "micro-step " << micro_step;
      }
      ++compared;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("no window"));
    }
  }
  EXPECT_GT(compared, 100);
}

}  // namespace
}  // namespace adtrain
