#include "placement/PlacedNetwork.h"

#include <chrono>
#include <semaphore>
#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/Error.h"
#include "base/Gpu.h"
#include "model/QuantisedNetwork.h"
#include "placement/PlacedCases.h"
#include "placement/StreamedModules.h"

namespace adtrain {
namespace {

using testing::every_placed_case;
using testing::kMaps;
using testing::kPlenty;
using testing::Placed;
using testing::PlacedCase;
using testing::plenty;

void append(const AlgorithmDistillation::Predictions& predictions, std::vector<at::Tensor>& found) {
  found.push_back(predictions.actions.cpu());
  if (predictions.token_types.defined()) found.push_back(predictions.token_types.cpu());
}

std::vector<at::Tensor> predictions_of(AlgorithmDistillation& model, const std::vector<Batch>& batches,
                                       at::Device device = at::kCPU) {
  std::vector<at::Tensor> found;
  for (const Batch& batch : batches) append(model.predict(batch.to(device)), found);
  return found;
}

/// All batches are on the way at once.
std::vector<at::Tensor> predictions_of(PlacedNetwork& network, const std::vector<Batch>& batches) {
  std::vector<PendingPredictions> pending;
  for (const Batch& batch : batches) pending.push_back(network.submit(batch));
  std::vector<at::Tensor> found;
  for (PendingPredictions& one : pending) append(one.get(), found);
  return found;
}

void expect_equal(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << "batch " << i;
}

TEST(PlacedNetwork, LogitsOnLogicalDevicesAreBitEqualToTheWholeNetworks) {
  at::set_num_threads(1);
  for (const PlacedCase& one : every_placed_case()) {
    const std::vector<Batch> batches = one.batches();
    const auto whole = one.model();
    const std::vector<at::Tensor> expected = predictions_of(*whole, batches);
    for (const Placed& placed : kMaps) {
      SCOPED_TRACE(fmt::format("{} {}", one.name, placed.map));
      const auto model = one.model();
      const auto modules = modules_of(*model, at::kFloat);
      const DeviceMap map = DeviceMap::given(placed.map, modules, plenty(), {});
      PlacedNetwork network(*model, modules, map, {3, at::Device(at::kCPU)}, at::kFloat);
      EXPECT_EQ(network.stages(), placed.stages);
      expect_equal(predictions_of(network, batches), expected);
    }
  }
}

TEST(PlacedNetwork, QuantisedWeightsGoWhereTheMapSaysAndPredictTheSame) {
  at::set_num_threads(1);
  for (const PlacedCase& one : every_placed_case()) {
    const std::vector<Batch> batches = one.batches();
    for (const WeightQuantisation& how :
         {WeightQuantisation{.double_quantisation = true}, WeightQuantisation{.code = QuantisedCode::int8}}) {
      const auto whole = one.model();
      const auto names = quantised_names(whole->parameters(), "", "");
      whole->quantise(names, how, at::kCPU, at::kBFloat16);
      const std::vector<at::Tensor> expected = predictions_of(*whole, batches);
      for (const Placed& placed : kMaps) {
        if (how.code == QuantisedCode::int8 && placed.stages < 5) continue;  // two maps say enough
        SCOPED_TRACE(fmt::format("{} {} {}", one.name, how.name(), placed.map));
        const auto model = one.model();
        model->quantise(names, how, at::kCPU, at::kBFloat16);
        const QuantisedSize size = QuantisedSize::of(model->parameters(), names, how, at::kBFloat16);
        const auto modules = modules_of(*model, size.parameters);
        EXPECT_EQ(total_bytes(modules), size.total);
        const DeviceMap map = DeviceMap::given(placed.map, modules, plenty(), {});
        PlacedNetwork network(*model, modules, map, {3, at::Device(at::kCPU)}, at::kBFloat16);
        expect_equal(predictions_of(network, batches), expected);
      }
    }
  }
}

TEST(PlacedNetwork, OneBufferStreamsTheSameWeightsAsTwo) {
  at::set_num_threads(1);
  const PlacedCase one = every_placed_case().front();
  const std::vector<Batch> batches = one.batches();
  const auto whole = one.model(), model = one.model();
  const auto modules = modules_of(*model, at::kFloat);
  const int64_t block = modules[1].bytes;
  const MemoryLimits limits = {.gpus = {{0, modules[0].bytes + block}}, .cpu = kPlenty, .from_user = true};
  const DeviceMap map = DeviceMap::given("{embeddings: 0, blocks: cpu, head: cpu}", modules, limits, {});
  ASSERT_EQ(map.streaming_buffers(), 1);
  PlacedNetwork network(*model, modules, map, {at::kCPU}, at::kFloat);
  expect_equal(predictions_of(network, batches), predictions_of(*whole, batches));
  EXPECT_TRUE(at::equal(model->parameters().flat(), whole->parameters().flat()));
}

TEST(PlacedNetwork, AFaultIsThatOfItsBatchAlone) {
  at::set_num_threads(1);
  const PlacedCase one = every_placed_case().front();
  const std::vector<Batch> batches = one.batches();
  const auto whole = one.model(), model = one.model();
  const auto modules = modules_of(*model, at::kFloat);
  const DeviceMap map = DeviceMap::automatic(modules, plenty(), MapMode::kBalanced, {});
  PlacedNetwork network(*model, modules, map, {3, at::Device(at::kCPU)}, at::kFloat);
  EXPECT_GT(network.stages(), 1);
  Batch broken = batches.front();
  broken.states = broken.states + 1'000'000;
  PendingPredictions first = network.submit(batches.front()), second = network.submit(broken),
                     third = network.submit(batches.front());
  const at::Tensor expected = predictions_of(*whole, batches).front();
  EXPECT_TRUE(at::equal(first.get().actions, expected));
  EXPECT_THROW(second.get(), std::exception);
  EXPECT_TRUE(at::equal(third.get().actions, expected));
}

/// Two blocks, each of which waits until the other is entered, by another batch: it fails where stages do not
/// work at once.
class MeetingNetwork final : public AlgorithmDistillation {
 public:
  MeetingNetwork() : AlgorithmDistillation(ModelOptions{}, ModelShape{}) {
    std::vector<NamedTensor> parameters;
    for (const char* const name : {"embed.weight", "blocks.0.weight", "blocks.1.weight", "head.weight"})
      parameters.push_back({name, at::zeros({1})});
    adopt(std::move(parameters));
  }
  Predictions forward(const Batch&, LossPositions, bool) override { return {}; }
  std::optional<Parts> parts() override {
    const auto embeddings = [](const Batch& batch) { return Tokens{batch.rewards, {}, 1}; };
    const auto through = [this](const Tokens& tokens, int64_t first, int64_t) {
      // The first batch comes to block 0, and the last one to block 1, alone.
      const float batch = tokens.x.item<float>();
      if (first == 0 ? batch > 0 : batch < kBatches - 1) meet(first);
      return tokens.x;
    };
    const auto head = [](const Tokens& tokens) { return Predictions{tokens.x, {}}; };
    return Parts{2, embeddings, through, head};
  }
  static constexpr float kBatches = 6;

 private:
  /// Lets the other block go on, and waits until it does the same.
  void meet(int64_t block) {
    entered_[block].release();
    if (!entered_[1 - block].try_acquire_for(std::chrono::seconds(30)))
      throw std::runtime_error("the other stage does nothing meanwhile");
  }
  std::counting_semaphore<> entered_[2] = {std::counting_semaphore<>(0), std::counting_semaphore<>(0)};
};

TEST(PlacedNetwork, StagesWorkAtOnce) {
  MeetingNetwork model;
  const auto modules = modules_of(model, at::kFloat);
  const DeviceMap map =
      DeviceMap::given("{embeddings: 0, blocks.0: 0, blocks.1: 1, head: 1}", modules, plenty(), {});
  PlacedNetwork network(model, modules, map, {2, at::Device(at::kCPU)}, at::kFloat);
  std::vector<PendingPredictions> pending;
  for (float number = 0; number < MeetingNetwork::kBatches; ++number) {
    Batch batch;
    batch.rewards = at::full({1}, number);
    pending.push_back(network.submit(batch));
  }
  for (size_t i = 0; i < pending.size(); ++i)
    EXPECT_EQ(pending[i].get().actions.item<float>(), static_cast<float>(i));
}

/// As a plug-in's.
class WholeNetwork final : public AlgorithmDistillation {
 public:
  WholeNetwork() : AlgorithmDistillation(ModelOptions{}, ModelShape{}) {
    adopt(std::vector<NamedTensor>{{"weight", at::zeros({1})}});
  }
  Predictions forward(const Batch&, LossPositions, bool) override { return {}; }
};

TEST(PlacedNetwork, RefusesANetworkThatRunsAsAWhole) {
  WholeNetwork model;
  EXPECT_FALSE(model.rolling());
  try {
    PlacedNetwork::check(model);
    ADD_FAILURE() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("leave device_map out"));
  }
}

TEST(StreamedModules, HaveTheirValuesWheneverTheyAreAskedFor) {
  for (const int64_t buffers : {1, 2}) {
    std::vector<std::vector<at::Tensor>> modules, values;
    for (int64_t module = 0; module < 3; ++module) {
      modules.push_back({at::randn({2, module + 1}), at::randn({70})});
      values.push_back({modules.back()[0].clone(), modules.back()[1].clone()});
    }
    StreamedModules streamed(modules, at::kCPU, buffers);
    for (const size_t module :
         {0, 1, 2, 0, 1, 2, 1, 1, 0, 2, 0}) {  // also out of the order that is fetched ahead
      streamed.bring(module);
      for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(modules[module][i], values[module][i]));
    }
  }
}

/// By its own kernels on each GPU, as on one.
void expect_equal_on_gpus(const testing::PlacedOnGpus& placed) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const PlacedCase& one : every_placed_case()) {
      const std::vector<Batch> batches = one.batches();
      SCOPED_TRACE(fmt::format("{} {} {}", one.name, placed.map, precision_name(type)));
      const auto whole = one.model(), model = one.model();
      whole->parameters().to(at::Device(at::kCUDA, 0), type);
      const auto modules = modules_of(*model, type);
      const DeviceMap map = DeviceMap::given(placed.map, modules, plenty(), {});
      EXPECT_GE(map.streaming_buffers(), placed.buffers);
      PlacedNetwork network(*model, modules, map, testing::visible_gpus(), type);
      for (int repeat = 0; repeat < 3; ++repeat) {
        const auto found = predictions_of(network, batches);
        const auto expected = predictions_of(*whole, batches, at::Device(at::kCUDA, 0));
        for (size_t i = 0; i < found.size(); ++i)
          EXPECT_LE(testing::relative_error(found[i], expected[i]), 1e-6) << "batch " << i;
      }
    }
  }
}

TEST(PlacedOnGpus, OneGpuStreamsFromTheCpu) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  for (const testing::PlacedOnGpus& placed : testing::kMapsOnOneGpu) expect_equal_on_gpus(placed);
}

TEST(PlacedOnGpus, TwoGpusComputeWhatOneDoes) {
  if (visible_gpu_count() < 2) GTEST_SKIP() << "no GPU but one here";
  for (const testing::PlacedOnGpus& placed : testing::kMapsOnTwoGpus) expect_equal_on_gpus(placed);
}

}  // namespace
}  // namespace adtrain
