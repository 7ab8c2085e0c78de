#include "evaluation/gpu/GpuRollout.h"

#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Gpu.h"
#include "evaluation/Rollout.h"
#include "evaluation/Rollouts.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

struct Case {
  std::string name;
  ModelOptions model;
  std::string family = "darkroom";
  int64_t trials = 12;
  int64_t episodes = 6;
  EvaluationOptions evaluation = {};
};

/// Rollouts of the model on the CPU, step by step, are the definition of what is right.
class GpuRollout_ : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }
};

std::unique_ptr<AlgorithmDistillation> random_model(const ModelOptions& options, at::Device device) {
  auto model = AlgorithmDistillation::create(options, ModelShape{}, 5);
  {
    const at::NoGradGuard no_grad;
    // Decided enough that what stands in the context shows in the actions; a region ends now and then.
    for (const NamedTensor& named : model->parameters().named()) {
      if (named.name.rfind("pred_", 0) == 0) named.tensor.mul_(4);
    }
    model->parameters().refresh();
  }
  model->parameters().to(device);
  return model;
}

TaskFamily family_of(const std::string& name) {
  EnvironmentOptions options;
  options.env = name;
  if (name != "darkroom") options.horizon = 50;
  return TaskFamily::of(options);
}

std::vector<Trial> some_trials(const TaskFamily& family, int64_t count) {
  std::vector<Trial> trials;
  for (int64_t i = 0; i < count; ++i) trials.push_back({(i / 2 * 7 + 3) % family.task_count(), i % 2});
  return trials;
}

/// The logits after the last actions: those of the first question or, where a region ended, of the second
/// one, which is asked of such rows alone.
class LastLogits {
 public:
  explicit LastLogits(const ModelOptions& options) : options_(options) {}

  void take(const Batch& batch, const AlgorithmDistillation::Predictions& predictions) {
    if (ended_.defined() && ended_.numel() > 0) {
      logits_.index_copy_(0, ended_, predictions.actions);
      ended_ = at::Tensor();
      return;
    }
    logits_ = predictions.actions.clone();
    if (!options_.compressed()) return;
    const at::Tensor emitted =
        predictions.token_types.argmax(1).eq(int64_t{kEndCompress}).logical_and(batch.current.gt(0));
    ended_ = emitted.logical_or(batch.current.eq(options_.compress_interval)).nonzero().flatten();
  }
  const at::Tensor& logits() const { return logits_; }

 private:
  ModelOptions options_;
  at::Tensor logits_, ended_;
};

TEST_P(GpuRollout_, DoesWhatTheCpuDoes) {
  const auto& [name, options, family_name, count, episodes, evaluation] = GetParam();
  const at::Device gpu(at::kCUDA, 0);
  const auto on_cpu = random_model(options, at::kCPU), on_gpu = random_model(options, gpu);
  const TaskFamily family = family_of(family_name);
  const std::vector<Trial> trials = some_trials(family, count);
  const PackedNetwork network(*on_gpu);
  GpuRollout found(network, family, trials, options, evaluation);
  Rollout expected(family, trials, options, evaluation);
  LastLogits last(options);
  const bool in_one_call = !evaluation.eval_forget_unrewarded;  // else rows of unequal length are asked apart
  const Predictor predict = [&](const Batch& batch) {
    auto predictions = predictor_of(*on_cpu)(batch);
    if (in_one_call) last.take(batch, predictions);
    return predictions;
  };
  float earned = 0;
  at::Tensor alike = at::ones({count}, at::kBool);
  for (int64_t episode = 0; episode < episodes; ++episode) {
    const std::vector<float> expected_returns = expected.run_episode(predict);
    const std::vector<float> found_returns = found.run_episode();
    alike.logical_and_(at::tensor(found_returns).eq(at::tensor(expected_returns)));
    earned += std::accumulate(found_returns.begin(), found_returns.end(), 0.0F);
    // Another context would show: where the logits are the same at every episode's end, so were the actions.
    if (in_one_call) {
      const at::Tensor error =
          (found.last_logits() - last.logits()).abs().amax(1) / last.logits().abs().max();
      alike.logical_and_(error.lt(1e-3));
    }
    EXPECT_GE(alike.sum().item<int64_t>(), count - 1 - count / 50) << "episode " << episode;
  }
  EXPECT_TRUE(in_one_call || earned > 0) << "returns alone were compared, and all are 0";
}

ModelOptions model_of(TransformerBlock block, int64_t width, int64_t heads, int64_t layers,
                      int64_t n_transit) {
  ModelOptions options;
  options.transformer_block = block;
  options.tf_n_embd = width;
  options.tf_n_head = heads;
  options.tf_n_layer = layers;
  options.n_transit = n_transit;
  return options;
}

ModelOptions compressed_model(int64_t interval) {
  ModelOptions options = model_of(TransformerBlock::kPostNorm, 64, 4, 3, 2 * interval + 4);
  options.use_compressed_context = true;
  options.compress_interval = interval;
  return options;
}

std::vector<Case> cases() {
  constexpr auto kPre = TransformerBlock::kPreNorm, kPost = TransformerBlock::kPostNorm;
  EvaluationOptions greedy, terminal, cold, forgetful;
  greedy.eval_sampling = Sampling::kGreedy;
  terminal.eval_terminal_observation = true;
  cold.eval_temperature = 0.5;
  forgetful.eval_forget_unrewarded = 2;
  ModelOptions largest =
      model_of(kPost, 128, 4, 2, 256);  // which takes several blocks a trial, and so several waves
  ModelOptions uneven = model_of(kPre, 64, 8, 2, 37);
  uneven.tf_n_inner = 144;
  return {
      {"PostNorm", model_of(kPost, 64, 4, 4, 50)},
      {"PreNorm", model_of(kPre, 32, 4, 4, 50)},
      {"PreNormTwoHeads", model_of(kPre, 32, 2, 3, 80)},
      {"WideHeads", model_of(kPost, 128, 4, 2, 33)},
      {"NarrowHeads", model_of(kPost, 128, 16, 2, 33)},
      {"OneLayerOneHead", model_of(kPre, 32, 1, 1, 20)},
      {"Uneven", uneven},
      {"SixHeads", model_of(kPost, 96, 6, 2, 40)},
      {"TwelveLayers", model_of(kPre, 32, 4, 12, 30)},
      {"Compressed", compressed_model(20)},
      {"CompressedLongest", compressed_model(126), "darkroom", 4, 16},
      {"CompressedShort", compressed_model(7)},
      {"Guide", model_of(kPost, 64, 4, 4, 240), "darkroom", 4, 14},
      {"KeyToDoor", model_of(kPre, 32, 4, 2, 60), "darkkeytodoor"},
      {"Permuted", model_of(kPost, 64, 4, 2, 60), "darkroompermuted", 12, 3, terminal},
      {"Greedy", model_of(kPost, 64, 4, 2, 40), "darkroom", 12, 4, greedy},
      {"Cold", model_of(kPre, 32, 2, 3, 80), "darkroom", 12, 6, cold},
      {"Forgetful", model_of(kPre, 32, 2, 3, 80), "darkroom", 40, 12, forgetful},
      {"ForgetfulInShortWindows", model_of(kPost, 64, 4, 2, 30), "darkroom", 40, 12, forgetful},
      {"Largest", largest, "darkroom", 70, 2},
      {"ManyTrials", model_of(kPre, 32, 4, 2, 70), "darkroom", 300, 5},
  };
}

INSTANTIATE_TEST_SUITE_P(GpuRollout, GpuRollout_, testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

TEST(GpuRollout, BrokenWeightsAreNamed) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const ModelOptions options = model_of(TransformerBlock::kPreNorm, 32, 4, 2, 20);
  const auto model = random_model(options, at::Device(at::kCUDA, 0));
  {
    const at::NoGradGuard no_grad;
    model->parameters().flat().fill_(std::numeric_limits<float>::quiet_NaN());
  }
  const TaskFamily family = family_of("darkroom");
  const PackedNetwork network(*model);
  GpuRollout rollout(network, family, some_trials(family, 2), options, EvaluationOptions{});
  try {
    rollout.run_episode();
    FAIL() << "nothing was thrown";
  } catch (const NonFiniteError& error) {
    EXPECT_THAT(error.what(), HasSubstr("task 3"));
  }
}

TEST(GpuRollout, OtherModelsAreAskedStepByStep) {
  ModelOptions gpt2 = model_of(TransformerBlock::kAuto, 32, 4, 2, 20);
  gpt2.model = ModelKind::kGpt2;
  EXPECT_THAT(PackedNetwork::objection(gpt2, ModelShape{}).value_or(""), HasSubstr("GPT-2"));
  const auto wide = model_of(TransformerBlock::kPreNorm, 256, 8, 2, 20);
  EXPECT_THAT(PackedNetwork::objection(wide, ModelShape{}).value_or(""), HasSubstr("tf_n_embd is 256"));
  const auto longest = model_of(TransformerBlock::kPreNorm, 32, 4, 2, 257);
  EXPECT_THAT(PackedNetwork::objection(longest, ModelShape{}).value_or(""), HasSubstr("257 tokens"));
  EXPECT_FALSE(PackedNetwork::objection(model_of(TransformerBlock::kPreNorm, 32, 4, 2, 256), ModelShape{}));

  const TaskFamily family = family_of("darkroom");
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here: whether they roll out was not tested";
  const auto model = random_model(gpt2, at::Device(at::kCUDA, 0));
  const Rollouts rollouts = Rollouts::of(*model, family, EvaluationOptions{}, /*captures=*/false);
  EXPECT_THAT(rollouts.place, HasSubstr("GPT-2"));
  EXPECT_THAT(rollouts.place, HasSubstr("kept while contexts grow"));
  EXPECT_EQ(rollouts.begin(some_trials(family, 3))().size(), 3U);
}

}  // namespace
}  // namespace adtrain
