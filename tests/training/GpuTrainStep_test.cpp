#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "OnGpuStream.h"
#include "collectives/SingleCommunicator.h"
#include "data/HistorySet.h"
#include "data/TransitionWindows.h"
#include "model/FrozenParameters.h"
#include "training/TrainStep.h"

namespace adtrain {
namespace {

struct Setting {
  at::Device device = at::Device(at::kCUDA, 0);
  at::ScalarType type = at::kFloat;
  CudaGraphUse cuda_graph = CudaGraphUse::kOff;
  HistoriesOnGpu histories = HistoriesOnGpu::kOn;
  int64_t accumulation = 1;
  double dropout = 0;
  double attention_dropout = -1;  ///< negative: as the other
  TransformerBlock block = TransformerBlock::kAuto;
  Recompute recompute = Recompute::kNone;
  int64_t window = 16, heads = 4;
  std::string freeze = "";
};

constexpr int64_t kSteps = 12;

/// A small run of kSteps steps; the same samples in the same order whatever the setting.
class SmallRun {
 public:
  explicit SmallRun(const Setting& setting)
      : histories_(HistorySet::random(5, 200, {9, 5}, 1)),
        windows_(histories_, {.steps = 200, .horizon = 20, .length = setting.window}),
        communicator_(setting.device) {
    ModelOptions model;
    model.tf_n_embd = 32;
    model.tf_n_layer = 2;
    model.n_transit = setting.window;
    model.tf_n_head = setting.heads;
    model.transformer_block = setting.block;
    model.recompute = setting.recompute;
    model.tf_dropout = setting.dropout;
    model.tf_attn_dropout = setting.attention_dropout < 0 ? setting.dropout : setting.attention_dropout;
    model_ = AlgorithmDistillation::create(model, {}, 3);
    freeze(model_->parameters(), setting.freeze, "freeze");
    model_->parameters().to(setting.device, setting.type);
    const ParameterBuffer& of_model = model_->parameters();
    const int64_t trained = of_model.trained_of(of_model.flat()).numel();
    frozen_before = of_model.flat().narrow(0, 0, of_model.flat().numel() - trained).cpu().clone();
    TrainingOptions options;
    options.cuda_graph = setting.cuda_graph;
    const BatchShare share = {.micro_batch = 24 / setting.accumulation, .accumulation = setting.accumulation};
    DataOptions data;
    data.histories_on_gpu = setting.histories;
    const auto batches = BatchSource::create(
        {.windows = windows_, .order = SampleOrder(windows_.samples(), 5), .share = share, .first_sample = 0},
        data, setting.device);
    GradientReducer reducer(of_model.trained_leaves(), communicator_, {});
    Optimizer optimizer(of_model.trained_of(of_model.flat()), options);
    LossScale loss_scale(setting.device);
    TrainStep step({.model = *model_,
                    .communicator = communicator_,
                    .reducer = reducer,
                    .optimizer = optimizer,
                    .loss_scale = setting.type == at::kHalf ? &loss_scale : nullptr},
                   share, options);
    for (int64_t i = 0; i < kSteps; ++i) {
      step.run(*batches, i, 1e-3 * static_cast<double>(i + 1) / kSteps);
      losses.push_back(step.losses().take_merged(communicator_).loss);
    }
    captured = step.captured();
    parameters = model_->parameters().flat().cpu();
    for (const auto& [name, leaf] : model_->parameters().named_leaves())
      leaves[leaf.storage_offset()] = {name, leaf.numel()};
  }

  std::vector<double> losses;
  at::Tensor parameters;
  /// Names and sizes, by where they begin in `parameters`.
  std::map<int64_t, std::pair<std::string, int64_t>> leaves;
  at::Tensor frozen_before;  ///< what is frozen, which lies in front, as it was before the first step
  bool captured = false;

 private:
  HistorySet histories_;
  TransitionWindows windows_;
  SingleCommunicator communicator_;
  std::unique_ptr<AlgorithmDistillation> model_;
};

/// Without the biases of keys: they add the same to a query's scores of all keys, so that their gradients are
/// 0 but for rounding, of which AdamW makes whole steps.
at::Tensor apart_from_keys_biases(const SmallRun& found, const SmallRun& expected) {
  const at::Tensor apart = (found.parameters - expected.parameters).abs();
  for (const auto& [first, leaf] : found.leaves) {
    const int64_t of_keys = leaf.second / 3;  // behind as many of queries
    if (leaf.first.ends_with("attention.qkv.bias")) apart.narrow(0, first + of_keys, of_keys).zero_();
  }
  return apart;
}

void expect_close(const SmallRun& found, const SmallRun& expected, double tolerance) {
  for (size_t i = 0; i < found.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], tolerance) << "step " << i;
  }
  const at::Tensor apart = apart_from_keys_biases(found, expected);
  const auto most = apart.argmax().item<int64_t>();
  const auto& [first, leaf] = *std::prev(found.leaves.upper_bound(most));
  EXPECT_LT(apart.max().item<double>(), tolerance) << "at element " << most - first << " of " << leaf.first;
}

class GpuTrainStep : public OnGpuStream {};

TEST_F(GpuTrainStep, IsTheCpusToRounding) {
  expect_close(SmallRun({}), SmallRun({.device = at::kCPU}), 2e-4);
  const Setting dropping = {.dropout = 0.3, .attention_dropout = 0};
  Setting on_cpu = dropping;
  on_cpu.device = at::kCPU;
  expect_close(SmallRun(dropping), SmallRun(on_cpu), 2e-4);
}

TEST_F(GpuTrainStep, CapturedIsTheEagerOne) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const SmallRun captured({.type = type, .cuda_graph = CudaGraphUse::kOn});
    EXPECT_TRUE(captured.captured);
    expect_close(captured, SmallRun({.type = type}), type == at::kFloat ? 1e-5 : 2e-3);
  }
}

TEST_F(GpuTrainStep, WhatIsFrozenKeepsItsBitsCapturedAndEagerly) {
  // The first block, a norm of the second one, and some of the ends.
  const std::string some = "*.0.*,*.1.norm*1.weight,embed_context.bias,pred_action.weight";
  for (const auto block : {TransformerBlock::kPreNorm, TransformerBlock::kPostNorm}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const Setting setting = {.type = type, .block = block, .freeze = some};
      Setting other = setting;
      other.cuda_graph = CudaGraphUse::kOn;
      const SmallRun eager(setting), captured(other);
      EXPECT_TRUE(captured.captured);
      expect_close(captured, eager, type == at::kFloat ? 1e-5 : 2e-3);
      for (const SmallRun* run : {&eager, &captured}) {
        EXPECT_GT(run->frozen_before.numel(), 4000);
        EXPECT_TRUE(at::equal(run->parameters.narrow(0, 0, run->frozen_before.numel()), run->frozen_before));
      }
      if (type != at::kFloat) continue;
      other = setting;
      other.device = at::kCPU;
      expect_close(eager, SmallRun(other), 5e-4);  // 2.6e-4 on an H200; a learning rate is 1e-3
    }
  }
}

TEST_F(GpuTrainStep, CapturedWithBatchesFromTheHostIsTheEagerOne) {
  const SmallRun captured({.cuda_graph = CudaGraphUse::kOn, .histories = HistoriesOnGpu::kOff});
  EXPECT_TRUE(captured.captured);
  expect_close(captured, SmallRun({}), 1e-5);
}

TEST_F(GpuTrainStep, AccumulationChangesNothingButRounding) {
  for (const CudaGraphUse use : {CudaGraphUse::kOff, CudaGraphUse::kOn}) {
    expect_close(SmallRun({.cuda_graph = use, .accumulation = 3}), SmallRun({}), 2e-5);
  }
}

TEST_F(GpuTrainStep, DropoutAdvancesInTheGraphAsItDoesOutside) {
  for (const int64_t accumulation : {1, 2}) {
    const SmallRun eager({.accumulation = accumulation, .dropout = 0.3});
    const SmallRun captured({.cuda_graph = CudaGraphUse::kOn, .accumulation = accumulation, .dropout = 0.3});
    expect_close(captured, eager, 1e-5);
    EXPECT_GT((eager.parameters - SmallRun({}).parameters).abs().max().item<double>(), 1e-4);
  }
}

/// With dropout of plain operators, of whole blocks, and of blocks by sublayers with our own attention.
TEST_F(GpuTrainStep, AccumulationChangesNothingButRoundingWithDropoutToo) {
  const Setting plain = {.dropout = 0.3, .attention_dropout = 0},
                whole = {.type = at::kBFloat16, .dropout = 0.3};
  Setting by_sublayers = whole;
  by_sublayers.window = 64;
  by_sublayers.heads = 1;
  by_sublayers.block = TransformerBlock::kXland;
  for (Setting setting : {plain, whole, by_sublayers}) {
    const double tolerance = setting.type == at::kFloat ? 2e-5 : 2e-3;
    const SmallRun expected(setting);
    Setting none = setting;
    none.dropout = none.attention_dropout = 0;
    const SmallRun without(none);
    EXPECT_GT(std::abs(expected.losses[0] - without.losses[0]), 1e-4) << "it drops nothing";
    setting.accumulation = 3;
    for (const CudaGraphUse use : {CudaGraphUse::kOff, CudaGraphUse::kOn}) {
      setting.cuda_graph = use;
      expect_close(SmallRun(setting), expected, tolerance);
    }
  }
}

/// Whole blocks, and blocks of chosen pieces by sublayers around cuDNN's attention and our own.
TEST_F(GpuTrainStep, CapturedRecomputationDropsWhatTheForwardPassDropped) {
  const Setting bf16 = {.type = at::kBFloat16, .accumulation = 2, .dropout = 0.3};
  Setting whole_blocks = bf16, by_cudnn = bf16;
  by_cudnn.window = 64;
  by_cudnn.block = TransformerBlock::kXland;
  Setting normed_keys = by_cudnn, own_attention = by_cudnn;
  normed_keys.block = TransformerBlock::kVintix;
  own_attention.heads = 1;
  for (Setting setting : {whole_blocks, by_cudnn, normed_keys, own_attention}) {
    const SmallRun expected(setting);
    for (const Recompute recompute : {Recompute::kMlp, Recompute::kBlock}) {
      setting.recompute = recompute;
      setting.cuda_graph = CudaGraphUse::kOff;
      expect_close(SmallRun(setting), expected, 2e-3);
      setting.cuda_graph = CudaGraphUse::kOn;
      const SmallRun captured(setting);
      EXPECT_TRUE(captured.captured);
      expect_close(captured, expected, 2e-3);
    }
  }
}

TEST_F(GpuTrainStep, RecomputationOfLibtorchsAttentionWithDropoutIsNotCaptured) {
  for (const double in_attention : {0.0, 0.3}) {
    const Setting plain = {.dropout = 0.3, .attention_dropout = in_attention};
    Setting setting = plain;
    setting.recompute = Recompute::kBlock;
    const SmallRun eager(setting);
    setting.cuda_graph = CudaGraphUse::kOn;
    const SmallRun captured(setting);
    EXPECT_EQ(captured.captured, in_attention == 0);
    for (const SmallRun* found : {&eager, &captured}) expect_close(*found, SmallRun(plain), 1e-5);
  }
}

TEST_F(GpuTrainStep, PrecisionsAgree) {
  const SmallRun exact({});
  expect_close(SmallRun({.type = at::kBFloat16}), exact, 2e-2);
  expect_close(SmallRun({.type = at::kHalf}), exact, 1e-2);
}

}  // namespace
}  // namespace adtrain
