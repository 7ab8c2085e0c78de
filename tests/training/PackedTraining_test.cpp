// Steps on packed rows: means over all transitions of the global batch that are no padding.

#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "OnGpuStream.h"
#include "base/Clock.h"
#include "base/Random.h"
#include "collectives/SingleCommunicator.h"
#include "data/ColumnWindows.h"
#include "data/MemoryHistories.h"
#include "kernels/primitives/DeviceTraits.h"
#include "training/TrainStep.h"

namespace adtrain {
namespace {

/// A view of 5 × 5 packed cells, as in XLand-100B.
TaskSpaces grid_spaces() {
  TaskSpaces spaces{Space::multi_discrete({5, 5}, {13 * 12}), Space::discrete(6), {13, 12}};
  spaces.observation.type = spaces.action.type = ElementType::kUint8;
  return spaces;
}

MemoryHistories random_histories(int64_t count, int64_t least, int64_t most) {
  MemoryHistories source({{ColumnKind::kObservations, ElementType::kUint8, {5, 5}},
                          {ColumnKind::kActions, ElementType::kUint8, {}},
                          {ColumnKind::kRewards, ElementType::kFloat32, {}}});
  RandomStream random(3);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t steps = least + random.below(static_cast<uint32_t>(most - least));
    HistoryWindow& history = source.add(static_cast<size_t>(i % 3), steps);
    for (uint8_t& cell : history.columns[0].bytes) cell = static_cast<uint8_t>(random.below(156));
    for (uint8_t& action : history.columns[1].bytes) action = static_cast<uint8_t>(random.below(6));
    for (int64_t step = 0; step < steps; ++step)
      set_number(history, ColumnKind::kRewards, step, random.uniform());
  }
  return source;
}

struct Setting {
  at::Device device = at::kCPU;
  at::ScalarType type = at::kFloat;
  CudaGraphUse cuda_graph = CudaGraphUse::kOff;
  HistoriesOnGpu on_gpu = HistoriesOnGpu::kOn;
  int64_t micro_batch = 6, accumulation = 1;
  bool packed = true;
  int64_t length = 20, width = 16, layers = 2, heads = 2;
  PositionKind positions = PositionKind::kAlibi;
};

/// A run on these histories.
class PackedRun {
 public:
  PackedRun(const MemoryHistories& histories, const Setting& setting)
      : held_(histories, {{0, kAll, kAll}, {1, kAll, kAll}, {2, kAll, kAll}}, ColumnWindows::kinds()),
        communicator_(setting.device),
        share_{.micro_batch = setting.micro_batch, .accumulation = setting.accumulation} {
    held_.load(own_bytes(held_.bytes()), 1, [](auto&&...) { return std::string(); });
    windows_ = std::make_unique<ColumnWindows>(
        ColumnWindows::Origin{held_, {0, 1, 2}, {grid_spaces()}, "random", {}, &held_, true},
        ColumnWindowShape{.length = setting.length, .stride = setting.length, .packed = setting.packed},
        std::vector<TaskScale>(3));
    ModelOptions model;
    model.transformer_block = TransformerBlock::kXland;
    model.tf_n_embd = setting.width;
    model.tf_n_layer = setting.layers;
    model.tf_n_head = setting.heads;
    model.pieces.positions = setting.positions;
    model.n_transit = setting.length;
    model.tf_dropout = model.tf_attn_dropout = 0;
    model_ = AlgorithmDistillation::create(model, {.spaces = {grid_spaces()}, .packed = setting.packed}, 3);
    model_->parameters().to(setting.device, setting.type);
    TrainingOptions options;
    options.loss_positions = LossPositions::kAll;
    options.cuda_graph = setting.cuda_graph;
    DataOptions data;
    data.histories_on_gpu = setting.on_gpu;
    batches_ = BatchSource::create({.windows = *windows_,
                                    .order = SampleOrder(windows_->samples(), 5),
                                    .share = share_,
                                    .first_sample = 0},
                                   data, setting.device);
    const ParameterBuffer& parameters = model_->parameters();
    reducer_ = std::make_unique<GradientReducer>(parameters.leaves(), communicator_, ReducerOptions());
    optimizer_ = std::make_unique<Optimizer>(parameters.flat(), options);
    loss_scale_ = LossScale::for_type(setting.type, setting.device);
    step_ = std::make_unique<TrainStep>(TrainStep::Parts{.model = *model_,
                                                         .communicator = communicator_,
                                                         .reducer = *reducer_,
                                                         .optimizer = *optimizer_,
                                                         .loss_scale = loss_scale_.get()},
                                        share_, options);
  }

  /// The loss of each.
  std::vector<double> take_steps(int64_t count) {
    std::vector<double> losses;
    for (int64_t i = 0; i < count; ++i) {
      take_step();
      losses.push_back(step_->losses().take_merged(communicator_).loss);
    }
    return losses;
  }
  void take_step() { step_->run(*batches_, steps_++, 1e-3); }

  at::Tensor parameters() const { return model_->parameters().flat().detach().cpu().clone(); }
  bool captured() const { return step_->captured(); }
  const ColumnWindows& windows() const { return *windows_; }
  AlgorithmDistillation& model() { return *model_; }
  std::string attention() const {
    for (const auto& part : model_->plan(LossPositions::kAll).parts()) {
      if (part.name == "attention") return part.kernels;
    }
    return "plain operators";
  }

 private:
  static constexpr auto kAll = std::numeric_limits<int64_t>::max();

  HeldHistories held_;
  SingleCommunicator communicator_;
  BatchShare share_;
  std::unique_ptr<ColumnWindows> windows_;
  std::unique_ptr<AlgorithmDistillation> model_;
  std::unique_ptr<BatchSource> batches_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LossScale> loss_scale_;
  std::unique_ptr<TrainStep> step_;
  int64_t steps_ = 0;
};

void expect_close(const std::vector<double>& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << "step " << i;
}

TEST(PackedTraining, TheLossIsTheMeanOverWhatIsNoPadding) {
  const MemoryHistories histories = random_histories(40, 7, 12);
  PackedRun run(histories, {});
  const SampleOrder order(run.windows().samples(), 5);
  std::vector<int64_t> samples;
  int64_t targets = 0;
  for (int64_t position = 0; position < 6; ++position) {
    samples.push_back(order.sample_at(position));
    targets += run.windows().filled(samples.back());
  }
  EXPECT_LT(targets, 6 * 20);
  const at::Tensor sum = run.model().loss(run.windows().assemble(samples), LossPositions::kAll, false).sum;
  EXPECT_NEAR(run.take_steps(1)[0], sum.item<double>() / static_cast<double>(targets), 1e-5);
}

TEST(PackedTraining, AccumulationChangesRoundingAlone) {
  const MemoryHistories histories = random_histories(40, 7, 12);
  PackedRun whole(histories, {}), parts(histories, {.micro_batch = 2, .accumulation = 3});
  expect_close(parts.take_steps(8), whole.take_steps(8), 1e-5);
  EXPECT_LT((parts.parameters() - whole.parameters()).abs().max().item<double>(), 1e-5);
}

class GpuPackedTraining : public OnGpuStream {};

TEST_F(GpuPackedTraining, IsTheCpusCapturedAndEagerly) {
  const MemoryHistories histories = random_histories(60, 20, 45);
  for (const PositionKind positions :
       {PositionKind::kAlibi, PositionKind::kRotary, PositionKind::kLearned, PositionKind::kNone}) {
    Setting setting = {
        .micro_batch = 3, .accumulation = 2, .length = 70, .width = 64, .positions = positions};
    PackedRun on_cpu(histories, setting);
    const std::vector<double> expected = on_cpu.take_steps(8);
    setting.device = at::Device(at::kCUDA, 0);
    for (const auto& [type, tolerance] :
         {std::pair{at::kFloat, 2e-4}, std::pair{at::kBFloat16, 2e-2}, std::pair{at::kHalf, 5e-3}}) {
      setting.type = type;
      for (const HistoriesOnGpu on_gpu : {HistoriesOnGpu::kOn, HistoriesOnGpu::kOff}) {
        for (const CudaGraphUse graph : {CudaGraphUse::kOff, CudaGraphUse::kOn}) {
          setting.on_gpu = on_gpu;
          setting.cuda_graph = graph;
          PackedRun run(histories, setting);
          expect_close(run.take_steps(8), expected, tolerance);
          EXPECT_EQ(run.captured(), graph == CudaGraphUse::kOn);
          if (type != at::kFloat && kernels::DeviceTraits::of(setting.device).multiplies_by_warpgroups()) {
            EXPECT_THAT(run.attention(), ::testing::HasSubstr("of each history of a row"));
          }
        }
      }
    }
  }
}

/// For people, not for CTest: the network of XLand-100B's baseline on histories of a tenth to nine tenths of
/// the context, several in a row and one in each, whose rows cost what whole ones cost.
TEST_F(GpuPackedTraining, DISABLED_SpeedBesideOneHistoryARow) {
  constexpr int64_t kSteps = 6;
  for (const int64_t length : {1024, 4096}) {
    Setting setting = {.device = at::Device(at::kCUDA, 0),
                       .type = at::kBFloat16,
                       .cuda_graph = CudaGraphUse::kOn,
                       .micro_batch = 65536 / length,
                       .length = length,
                       .width = 512,
                       .layers = 8,
                       .heads = 8};
    const MemoryHistories short_ones = random_histories(400, length / 10, 9 * length / 10),
                          whole_ones = random_histories(200, length, length + 1);
    double steps_of_histories = 0;
    for (const TaskHistories& task : short_ones.tasks()) {
      for (const int64_t steps : task.steps) steps_of_histories += static_cast<double>(steps) / 400;
    }
    const auto rows_a_second = [&](PackedRun& run) {
      for (int i = 0; i < 6; ++i) run.take_step();
      c10::cuda::device_synchronize();
      const Stopwatch watch;
      for (int64_t i = 0; i < kSteps; ++i) run.take_step();
      c10::cuda::device_synchronize();
      return static_cast<double>(kSteps * setting.micro_batch) / watch.seconds();
    };
    double alone = 0, packed = 0, filled = 0;
    {
      setting.packed = false;
      PackedRun run(whole_ones, setting);
      alone = rows_a_second(run);
    }
    {
      setting.packed = true;
      PackedRun run(short_ones, setting);
      packed = rows_a_second(run);
      filled = run.windows().index().fill_rate() * static_cast<double>(length);
      std::cout << run.windows().description() << "; " << run.attention() << std::endl;
    }
    std::cout << length << " transitions a row, rows/s: packed " << packed << ", whole " << alone
              << "; transitions/s of histories: packed " << packed * filled << ", one a row "
              << alone * steps_of_histories << " (" << packed * filled / (alone * steps_of_histories)
              << " times)" << std::endl;
  }
}

}  // namespace
}  // namespace adtrain
