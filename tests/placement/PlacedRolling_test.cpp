#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/Gpu.h"
#include "model/QuantisedNetwork.h"
#include "placement/PlacedCases.h"
#include "placement/PlacedNetwork.h"

namespace adtrain {
namespace {

using testing::every_placed_case;
using testing::kMaps;
using testing::Placed;
using testing::PlacedCase;
using testing::plenty;

/// Networks whose rows can grow.
std::vector<PlacedCase> every_growing_case() {
  std::vector<PlacedCase> cases = every_placed_case();
  std::erase_if(cases, [](const PlacedCase& one) { return !one.model()->why_not_rolling().empty(); });
  return cases;
}

/// Rows of two groups of trials that grow in turn, which are not equally many, of each group of spaces.
struct GrowingRows {
  std::vector<Batch> rows;
  int64_t steps;

  /// A window that fills, is full and wraps; or is full, where it cannot slide.
  static GrowingRows of(const PlacedCase& one, const AlgorithmDistillation& model) {
    GrowingRows made = {{}, model.rolling_slides() ? one.options.n_transit + 4 : one.options.n_transit};
    for (const auto& draw : one.draw) {
      made.rows.push_back(draw(3, made.steps));
      made.rows.push_back(draw(2, made.steps));
    }
    return made;
  }
};

/// Of each step of each of the rows, in turn. `begin` makes what predicts of empty rows.
template <class Begin>
std::vector<at::Tensor> predictions_of(const PlacedCase& one, const GrowingRows& growing,
                                       const Begin& begin) {
  std::vector<decltype(begin())> predict;
  for (size_t i = 0; i < growing.rows.size(); ++i) predict.push_back(begin());
  std::vector<at::Tensor> found;
  for (int64_t step = 0; step < growing.steps; ++step) {
    for (size_t i = 0; i < growing.rows.size(); ++i)
      found.push_back(predict[i](one.step_of(growing.rows[i], step)));
  }
  return found;
}

std::vector<at::Tensor> predictions_of(AlgorithmDistillation& model, const PlacedCase& one,
                                       const GrowingRows& growing, at::Device device = at::kCPU) {
  return predictions_of(one, growing, [&] {
    return [rolling = model.rolling(), device](const Batch& step) {
      return rolling(step.to(device)).actions.cpu();
    };
  });
}

std::vector<at::Tensor> predictions_of(PlacedNetwork& network, const PlacedCase& one,
                                       const GrowingRows& growing) {
  return predictions_of(one, growing, [&] {
    return [rolling = network.rolling()](const Batch& step) { return rolling(step).get().actions; };
  });
}

void expect_equal(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_TRUE(at::equal(found[i], expected[i])) << "prediction " << i << " of " << found.size();
}

TEST(PlacedRolling, RowsThatGrowOnLogicalDevicesAreBitEqualToTheWholeNetworks) {
  at::set_num_threads(1);
  for (const PlacedCase& one : every_growing_case()) {
    const auto whole = one.model();
    const GrowingRows growing = GrowingRows::of(one, *whole);
    const std::vector<at::Tensor> expected = predictions_of(*whole, one, growing);
    for (const Placed& placed : kMaps) {
      if (placed.stages == 1) continue;
      SCOPED_TRACE(fmt::format("{} {}", one.name, placed.map));
      const auto model = one.model();
      const auto modules = modules_of(*model, at::kFloat);
      const DeviceMap map = DeviceMap::given(placed.map, modules, plenty(), {});
      PlacedNetwork network(*model, modules, map, {3, at::Device(at::kCPU)}, at::kFloat);
      ASSERT_EQ(network.stages(), placed.stages);
      expect_equal(predictions_of(network, one, growing), expected);
    }
  }
}

TEST(PlacedRolling, QuantisedWeightsKeepTheSameKeys) {
  at::set_num_threads(1);
  const WeightQuantisation how = {.double_quantisation = true};
  const Placed& placed = kMaps[5];
  const std::vector<PlacedCase> cases = every_growing_case();
  constexpr size_t kEvery = 3;
  for (size_t i = static_cast<size_t>(at::randint(kEvery, {1}).item<int64_t>()); i < cases.size();
       i += kEvery) {
    const PlacedCase& one = cases[i];
    SCOPED_TRACE(one.name);
    const auto whole = one.model(), model = one.model();
    const auto names = quantised_names(whole->parameters(), "", "");
    for (const auto& network : {whole.get(), model.get()})
      network->quantise(names, how, at::kCPU, at::kBFloat16);
    const QuantisedSize size = QuantisedSize::of(model->parameters(), names, how, at::kBFloat16);
    const auto modules = modules_of(*model, size.parameters);
    const DeviceMap map = DeviceMap::given(placed.map, modules, plenty(), {});
    PlacedNetwork network(*model, modules, map, {3, at::Device(at::kCPU)}, at::kBFloat16);
    const GrowingRows growing = GrowingRows::of(one, *whole);
    expect_equal(predictions_of(network, one, growing), predictions_of(*whole, one, growing));
  }
}

/// Windows go through the same stages meanwhile, and rows that begin later are empty.
TEST(PlacedRolling, RowsAreTheirOwnBesideWindowsAndOtherRows) {
  at::set_num_threads(1);
  const PlacedCase one = every_growing_case().front();
  const auto whole = one.model(), model = one.model();
  const auto modules = modules_of(*model, at::kFloat);
  const DeviceMap map = DeviceMap::given(kMaps[1].map, modules, plenty(), {});
  PlacedNetwork network(*model, modules, map, {3, at::Device(at::kCPU)}, at::kFloat);
  const Batch rows = one.draw.front()(3, one.options.n_transit), window = one.batches().front();
  const at::Tensor of_window = whole->predict(window).actions;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto rolling = network.rolling();
    const auto expected = whole->rolling();
    for (int64_t step = 0; step < one.options.n_transit; ++step) {
      const Batch newest = one.step_of(rows, step);
      PendingPredictions before = network.submit(window), asked = rolling(newest),
                         after = network.submit(window);
      EXPECT_TRUE(at::equal(asked.get().actions, expected(newest).actions)) << "step " << step;
      EXPECT_TRUE(at::equal(before.get().actions, of_window) && at::equal(after.get().actions, of_window));
    }
  }
}

/// By its own kernels on each GPU, as on one; with heads that our attention over kept keys takes.
void expect_equal_on_gpus(const testing::PlacedOnGpus& placed) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    int by_kernel = 0;
    for (PlacedCase& one : every_growing_case()) {
      SCOPED_TRACE(fmt::format("{} {} {}", one.name, placed.map, precision_name(type)));
      one.options.tf_n_embd = 64;
      one.options.tf_n_head = 2;
      const auto whole = one.model(), model = one.model();
      const at::Device gpu(at::kCUDA, 0);
      whole->parameters().to(gpu, type);
      by_kernel += whole->rolling_repeats() ? 1 : 0;
      const auto modules = modules_of(*model, type);
      const DeviceMap map = DeviceMap::given(placed.map, modules, plenty(), {});
      EXPECT_GE(map.streaming_buffers(), placed.buffers);
      PlacedNetwork network(*model, modules, map, testing::visible_gpus(), type);
      const GrowingRows growing = GrowingRows::of(one, *whole);
      const auto found = predictions_of(network, one, growing);
      const auto expected = predictions_of(*whole, one, growing, gpu);
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_LE(testing::relative_error(found[i], expected[i]), 1e-6) << "prediction " << i;
    }
    EXPECT_EQ(by_kernel > 0, type == at::kBFloat16);
  }
}

TEST(PlacedRollingOnGpus, OneGpuStreamsFromTheCpu) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  for (const testing::PlacedOnGpus& placed : testing::kMapsOnOneGpu) expect_equal_on_gpus(placed);
}

TEST(PlacedRollingOnGpus, TwoGpusComputeWhatOneDoes) {
  if (visible_gpu_count() < 2) GTEST_SKIP() << "no GPU but one here";
  for (const testing::PlacedOnGpus& placed : testing::kMapsOnTwoGpus) expect_equal_on_gpus(placed);
}

}  // namespace
}  // namespace adtrain
