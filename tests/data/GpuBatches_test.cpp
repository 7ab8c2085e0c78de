#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "data/BatchSource.h"
#include "data/HistorySet.h"
#include "data/TransitionWindows.h"

namespace adtrain {
namespace {

struct Cut {
  std::string name;
  WindowShape shape;
};

/// What threads on the CPU cut is the definition of what is right.
class GpuBatches : public testing::TestWithParam<Cut> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }

  void expect_the_cpus_batches(HistoriesOnGpu where) {
    const HistorySet histories = HistorySet::random(7, GetParam().shape.steps, {9, 5}, 3);
    const TransitionWindows windows(histories, GetParam().shape);
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
        Cut{"EveryThirdEpisode", {.steps = 200, .horizon = 20, .episode_stride = 3, .length = 30}},
        Cut{"Compressed", {.steps = 195, .horizon = 15, .region = 10}},
        Cut{"CompressedEverySecondEpisode", {.steps = 210, .horizon = 15, .episode_stride = 2, .region = 10}},
        Cut{"WholeRegions", {.steps = 195, .horizon = 15, .region = 10, .whole_regions_only = true}}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace adtrain
