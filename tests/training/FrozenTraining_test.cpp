#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include "base/Error.h"
#include "collectives/SingleCommunicator.h"
#include "data/HistorySet.h"
#include "data/TransitionWindows.h"
#include "model/FrozenParameters.h"
#include "training/TrainStep.h"
#include "training/TrainingState.h"

namespace adtrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelOptions small_network() {
  ModelOptions options;
  options.tf_n_embd = 16;
  options.tf_n_layer = 3;
  options.tf_n_head = 2;
  options.tf_n_inner = 32;
  options.n_transit = 8;
  options.tf_dropout = options.tf_attn_dropout = 0;
  return options;
}

TrainingOptions rule() {
  TrainingOptions options;
  options.max_grad_norm = 0.05;  // always clips
  options.weight_decay = 0.3;
  return options;
}

constexpr const char* kPatterns = "embed_context,transformer.blocks.0,transformer.blocks.2.attn.attn.weight";
constexpr double kRate = 1e-2;

/// A small run with what is frozen.
struct FrozenRun {
  explicit FrozenRun(const std::string& patterns, uint64_t seed = 3)
      : model(AlgorithmDistillation::create(small_network(), {}, seed)),
        reducer(frozen(patterns).trained_leaves(), communicator, {}),
        optimizer(model->parameters().trained_of(model->parameters().flat()), rule()),
        state(*model, optimizer),
        step({.model = *model,
              .communicator = communicator,
              .reducer = reducer,
              .optimizer = optimizer,
              .loss_scale = nullptr},
             share, rule()) {}

  ParameterBuffer& frozen(const std::string& patterns) const {
    freeze(model->parameters(), patterns, "freeze");
    return model->parameters();
  }
  std::unique_ptr<BatchSource> batches() const {
    return BatchSource::create({.windows = windows,
                                .order = SampleOrder(windows.samples(), 5),
                                .share = share,
                                .first_sample = state.progress.samples_drawn},
                               {}, at::kCPU);
  }
  void take_steps(int64_t count) {
    const auto source = batches();
    for (int64_t i = 0; i < count; ++i) {
      step.run(*source, state.progress.step++, kRate);
      state.progress.samples_drawn += share.global_batch();
    }
  }
  std::map<std::string, at::Tensor> values() const {
    std::map<std::string, at::Tensor> all;
    for (const auto& [name, tensor] : model->parameters().named()) all[name] = tensor.clone();
    return all;
  }

  HistorySet histories = HistorySet::random(5, 200, {9, 5}, 1);
  TransitionWindows windows{histories, {.steps = 200, .horizon = 20, .length = 8}};
  SingleCommunicator communicator{at::kCPU};
  BatchShare share = {.micro_batch = 6, .accumulation = 2};
  std::unique_ptr<AlgorithmDistillation> model;
  GradientReducer reducer;
  Optimizer optimizer;
  TrainingState state;
  TrainStep step;
};

/// The reference: libtorch's AdamW and clipping over those leaves that require gradients.
std::map<std::string, at::Tensor> trained_by_libtorch(const std::set<std::string>& frozen, int64_t steps) {
  const FrozenRun run("");  // for its data and first weights
  const std::vector<at::Tensor> leaves = run.model->parameters().leaves();
  const std::vector<NamedTensor> named = run.model->parameters().named();
  std::vector<at::Tensor> trained;
  run.model->send_gradients_to(nullptr);
  for (size_t i = 0; i < leaves.size(); ++i) {
    leaves[i].mutable_grad() = at::Tensor();
    leaves[i].set_requires_grad(!frozen.contains(named[i].name));
    if (leaves[i].requires_grad()) trained.push_back(leaves[i]);
  }
  const TrainingOptions options = rule();
  torch::optim::AdamW optimizer(trained, torch::optim::AdamWOptions(kRate)
                                             .betas({options.beta1, options.beta2})
                                             .eps(options.adam_epsilon)
                                             .weight_decay(options.weight_decay));
  const auto source = run.batches();
  for (int64_t step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    for (int64_t micro_step = 0; micro_step < run.share.accumulation; ++micro_step) {
      const auto loss = run.model->loss(source->next(), options.loss_positions, /*training=*/true);
      (loss.sum / (loss.targets * run.share.accumulation)).backward();
    }
    torch::nn::utils::clip_grad_norm_(trained, options.max_grad_norm);
    optimizer.step();
  }
  return run.values();
}

TEST(FrozenTraining, FrozenWeightsKeepTheirBitsAndTheOthersTrainAsByLibtorch) {
  FrozenRun run(kPatterns);
  const std::vector<std::string> names = run.model->parameters().frozen_names();
  const std::set<std::string> frozen(names.begin(), names.end());
  EXPECT_EQ(frozen.size(), 2U + 9U + 1U);
  const auto before = run.values();
  run.take_steps(5);
  const auto after = run.values(), expected = trained_by_libtorch(frozen, 5);
  for (const auto& [name, value] : after) {
    if (frozen.contains(name)) {
      EXPECT_TRUE(at::equal(value, before.at(name))) << name;
    } else {
      EXPECT_GT((value - before.at(name)).abs().max().item<double>(), 1e-3) << name;
      EXPECT_LT((value - expected.at(name)).abs().max().item<double>(), 2e-5) << name;
    }
  }
}

TEST(FrozenTraining, OnlyWhatTrainsTakesMemoryAndBytesOnTheWire) {
  const FrozenRun whole(""), run(kPatterns);
  int64_t frozen = 0;  // in the layout: each begins at a multiple of 64 elements
  const std::vector<std::string> names = run.model->parameters().frozen_names();
  for (const auto& [name, tensor] : run.model->parameters().named()) {
    if (std::ranges::find(names, name) != names.end()) frozen += (tensor.numel() + 63) / 64 * 64;
  }
  EXPECT_GT(frozen, 2000);
  EXPECT_EQ(run.reducer.bytes(), whole.reducer.bytes() - 4 * frozen);
  EXPECT_EQ(run.optimizer.bytes(), whole.optimizer.bytes() - 2 * 4 * frozen);
  EXPECT_EQ(run.model->parameters().bytes(), whole.model->parameters().bytes());
  const BucketLayout buckets(FlatLayout::of(run.model->parameters().trained_leaves()),
                             {.bucket_bytes = 4000});
  int64_t sent = 0;
  for (const BucketLayout::Bucket& bucket : buckets.buckets()) sent += bucket.part.size;
  EXPECT_EQ(4 * sent, run.reducer.bytes()) << "buckets cover the gradients that there are";
}

TEST(FrozenTraining, CheckpointsAreWholeAndContinueWithOtherParametersFrozen) {
  FrozenRun first("transformer.blocks.0,pred_action");
  first.take_steps(3);
  const Snapshot snapshot = first.state.snapshot({});
  EXPECT_EQ(snapshot.model.size(), first.model->parameters().named().size());
  EXPECT_EQ(snapshot.optimizer.size(), 1 + 2 * (snapshot.model.size() - 11));
  EXPECT_EQ(snapshot.state.at("frozen").size(), 11U);

  FrozenRun same("transformer.blocks.0,pred_action", 4);
  EXPECT_THAT(same.state.restore(snapshot), IsEmpty());
  same.take_steps(2);
  FrozenRun other("transformer.blocks.1,transformer.blocks.0", 4);
  EXPECT_THAT(
      other.state.restore(snapshot),
      ElementsAre(AllOf(HasSubstr("moments of 2 tensors that were frozen before and train now begin at 0"),
                        HasSubstr("pred_action.weight, pred_action.bias")),
                  AllOf(HasSubstr("of 9 tensors that are frozen now are left out"),
                        HasSubstr("transformer.blocks.1.norm_1.weight"))));
  EXPECT_EQ(other.optimizer.step_count().item<float>(), 3);
  std::map<std::string, at::Tensor> saved;
  for (const auto& [name, tensor] : snapshot.optimizer) saved[name] = tensor;
  for (const auto& [name, moment] :
       other.model->parameters().trained_views_of(other.optimizer.first_moment())) {
    if (name.starts_with("pred_action")) {
      EXPECT_EQ(moment.abs().max().item<float>(), 0) << name;
    } else {
      EXPECT_TRUE(at::equal(moment, saved.at("exp_avg." + name))) << name;
    }
  }
  const auto before = other.values();
  other.take_steps(1);
  for (const auto& [name, value] : other.values()) {
    EXPECT_EQ(at::equal(value, before.at(name)),
              name.starts_with("transformer.blocks.0") || name.starts_with("transformer.blocks.1"))
        << name;
  }
  first.take_steps(2);
  for (const auto& [name, value] : first.values())
    EXPECT_TRUE(at::equal(value, same.values().at(name))) << name << ": resumed as it was";

  // Moments that are missing for another reason are missed.
  Snapshot damaged = snapshot;
  std::erase_if(damaged.optimizer,
                [](const NamedTensor& tensor) { return tensor.name == "exp_avg.embed_query_state.weight"; });
  FrozenRun third("", 5);
  EXPECT_THROW(third.state.restore(damaged), CheckpointError);
}

TEST(FrozenTraining, ALossThatDependsOnNothingThatTrainsIsAnError) {
  ModelOptions options = small_network();
  options.transformer_block = TransformerBlock::kPostNorm;
  FrozenRun run("");
  const auto model = AlgorithmDistillation::create(options, {}, 3);
  freeze(model->parameters(), "embed*,pos*,transformer*,pred_action,token*", "freeze");
  GradientReducer reducer(model->parameters().trained_leaves(), run.communicator, {});
  Optimizer optimizer(model->parameters().trained_of(model->parameters().flat()), rule());
  TrainStep step({.model = *model,
                  .communicator = run.communicator,
                  .reducer = reducer,
                  .optimizer = optimizer,
                  .loss_scale = nullptr},
                 run.share, rule());
  const auto source = run.batches();
  EXPECT_THROW(step.run(*source, 0, kRate), ConfigError);
}

}  // namespace
}  // namespace adtrain
