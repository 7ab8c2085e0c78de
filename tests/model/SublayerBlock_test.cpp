#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "collectives/SingleCommunicator.h"
#include "kernels/FusedDevice.h"
#include "model/FrozenGradients.h"
#include "model/RandomBatch.h"
#include "parallel/GradientReducer.h"

namespace adtrain {
namespace {

using testing::relative_error;

struct Case {
  at::ScalarType type;
  std::string variant;
  LossPositions positions;
  int64_t width, heads;
};

void seed_device(uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(testing::fused_device()->device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

testing::Variant variant_of(const Case& tried, double dropout, FusedKernels fused = FusedKernels::kAuto) {
  testing::Variant variant = testing::variant(tried.variant);
  variant.options.tf_n_embd = tried.width;
  variant.options.tf_n_head = tried.heads;
  variant.options.tf_n_layer = testing::fused_device()->layers;
  variant.options.tf_dropout = variant.options.tf_attn_dropout = dropout;
  variant.options.fused_kernels = fused;
  if (variant.options.composed()) variant.options.n_transit = 80;  // more than a tile of attention
  if (variant.options.compressed()) {  // such that there is more padding than a warp tile of 16
    variant.options.compress_interval = 20;
    variant.options.n_transit = variant.options.longest_compressed_sequence();
  }
  return variant;
}

Batch batch_for(const testing::Variant& variant) {
  if (!variant.options.compressed())
    return testing::random_plain(testing::fused_device()->rows, variant.options.n_transit);
  const auto interval = static_cast<int32_t>(variant.options.compress_interval);
  return testing::random_compressed({0, 3, interval}, {interval, interval, interval}, interval);
}

/// The halves in the network, on a GPU or emulated (our own attention is, cuDNN's is not): the plain blocks
/// on the CPU in fp32 are the definition of what is right.
class BlockBySublayers : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!testing::fused_device()) GTEST_SKIP() << "no GPU here";
    if (device().is_cpu() && !emulated()) GTEST_SKIP() << "takes long in emulation";
  }
  static bool emulated() {
    const Case& tried = GetParam();
    return (tried.variant == "pre_norm" && tried.width <= 128) ||
           (tried.variant == "compressed" && tried.width <= 128) ||
           (tried.variant == "post_norm" && tried.width == 128 && tried.type == at::kBFloat16) ||
           (tried.variant == "gpt2" && tried.width <= 128) || tried.width == 64;
  }
  static double tolerance() { return GetParam().type == at::kHalf ? 2e-2 : 8e-2; }

  static std::unique_ptr<AlgorithmDistillation> on_device(const testing::Variant& variant) {
    auto model = testing::small_model(variant);
    model->parameters().to(device(), GetParam().type);
    return model;
  }
  static at::Device device() { return testing::fused_device()->device; }
};

TEST_P(BlockBySublayers, LossAndGradientAreThoseOfThePlainBlocks) {
  const testing::Variant variant = variant_of(GetParam(), 0.0);
  const auto plain = testing::small_model(variant);
  const auto halves = on_device(variant),
             library = on_device(variant_of(GetParam(), 0.0, FusedKernels::kOff));
  const auto plan_of = [](const auto& model) { return model->plan(GetParam().positions); };
  EXPECT_TRUE(plan_of(halves).by_sublayers());
  EXPECT_FALSE(plan_of(library).by_sublayers() || plan_of(plain).by_sublayers());
  const int64_t head_size = GetParam().width / GetParam().heads;
  const bool of_pieces = variant.options.composed();
  const bool fits = of_pieces || GetParam().width % 32 == 0;
  EXPECT_EQ(plan_of(halves).own_attention(), fits);
  EXPECT_EQ(plan_of(halves).fused_embedding(), fits && !of_pieces && !variant.options.compressed());
  EXPECT_EQ(plan_of(halves).streams_keys(),
            fits && (of_pieces || head_size == 64 || GetParam().type == at::kHalf));
  for (int draw = 0; draw < 2; ++draw) {
    const Batch batch = batch_for(variant);
    const auto expected = plain->loss(batch, GetParam().positions, true);
    const at::Tensor gradient = testing::flat_gradient(*plain, expected.sum);
    const auto error_of = [&](AlgorithmDistillation& model) {
      const auto found = model.loss(batch.to(device()), GetParam().positions, true);
      EXPECT_LT(relative_error(found.sum.cpu(), expected.sum), tolerance());
      return relative_error(testing::flat_gradient(model, found.sum).cpu().to(at::kFloat), gradient);
    };
    EXPECT_LT(error_of(*halves), std::max(tolerance() / 2, 1.5 * error_of(*library)));
  }
}

TEST_P(BlockBySublayers, AReducerGetsTheGradientsThatAutogradWouldHaveGot) {
  const testing::Variant variant = variant_of(GetParam(), 0.1);
  const auto model = on_device(variant);
  const Batch batch = batch_for(variant).to(device());
  seed_device(11);
  const at::Tensor expected =
      testing::flat_gradient(*model, model->loss(batch, GetParam().positions, true).sum).to(at::kFloat);

  SingleCommunicator alone(device());
  GradientReducer reducer(model->parameters().leaves(), alone, {});
  model->send_gradients_to(&reducer);
  for (int micro_step = 1; micro_step <= 2; ++micro_step) {  // they add up
    seed_device(11);
    reducer.begin_micro_step(true);
    model->loss(batch, GetParam().positions, true).sum.backward();
    EXPECT_LT(relative_error(reducer.flat_gradient(), micro_step * expected), 2e-2);
  }
  reducer.finish();
}

TEST_P(BlockBySublayers, WhatIsFrozenChangesNoGradientOfTheOthers) {
  testing::Variant variant = variant_of(GetParam(), 0.1);
  if (GetParam().type == at::kHalf) variant.options.recompute = Recompute::kBlock;
  const Batch batch = batch_for(variant).to(device());
  const auto gradients = [&](bool freezes) {
    const auto model = on_device(variant);
    const auto frozen = freezes ? testing::some_of(model->parameters()) : std::set<std::string>();
    seed_device(11);
    return testing::gradients_of(*model, batch, GetParam().positions, frozen);
  };
  const auto expected = gradients(false), found = gradients(true);
  EXPECT_LT(found.size(), 3 * expected.size() / 4);
  for (const auto& [name, gradient] : found) {
    // It moves all scores of a query alike: what there is of its gradient is rounding.
    if (name.ends_with("key_norm.bias")) continue;
    if (device().is_cpu()) {
      EXPECT_TRUE(at::equal(gradient, expected.at(name))) << name;
    } else if (gradient.numel() > 1) {
      // Roundings of what goes through autograd in 16 bits. A single element, first_reward's, is left out: a
      // sum of such roundings whose terms nearly cancel out.
      EXPECT_LT(relative_error(gradient, expected.at(name)), 2e-2) << name;
    }
  }
}

TEST_P(BlockBySublayers, RecomputationChangesNoGradient) {
  testing::Variant variant = variant_of(GetParam(), 0.1);
  const Batch batch = batch_for(variant).to(device());
  at::Tensor expected;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kMlp, Recompute::kBlock}) {
    variant.options.recompute = recompute;
    const auto model = on_device(variant);
    SingleCommunicator alone(device());
    GradientReducer reducer(model->parameters().leaves(), alone, {});
    model->send_gradients_to(&reducer);
    seed_device(11);
    reducer.begin_micro_step(true);
    model->loss(batch, GetParam().positions, true).sum.backward();
    reducer.finish();
    const at::Tensor found = reducer.flat_gradient().clone();
    if (recompute == Recompute::kNone) {
      expected = found;
    } else if (device().is_cpu()) {
      EXPECT_TRUE(at::equal(found, expected));
    } else {  // libraries' attention may add in any order
      EXPECT_LT(relative_error(found, expected), 1e-2);
    }
  }
}

TEST_P(BlockBySublayers, DropoutFollowsTheGenerator) {
  const testing::Variant variant = variant_of(GetParam(), 0.1);
  const auto model = on_device(variant);
  const Batch batch = batch_for(variant).to(device());
  const auto loss = [&](uint64_t seed, bool training) {
    seed_device(seed);
    return model->loss(batch, GetParam().positions, training).sum.item<double>();
  };
  EXPECT_EQ(loss(1, true), loss(1, true));
  EXPECT_NE(loss(1, true), loss(2, true));
  EXPECT_EQ(loss(1, false), loss(2, false));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const LossPositions positions : {LossPositions::kLast, LossPositions::kAll}) {
      all.push_back({type, "pre_norm", positions, 768, 12});
      all.push_back({type, "pre_norm", positions, 72, 3});
      all.push_back({type, "pre_norm", positions, 128, 4});
      all.push_back({type, "post_norm", positions, 768, 12});
      all.push_back({type, "post_norm", positions, 72, 3});
      all.push_back({type, "post_norm", positions, 96, 3});
      all.push_back({type, "post_norm", positions, 128, 8});
      for (const auto& [width, heads] : std::vector<std::array<int64_t, 2>>{{128, 4}, {64, 1}, {512, 8}})
        all.push_back({type, "compressed", positions, width, heads});
      for (const auto& [width, heads] : std::vector<std::array<int64_t, 2>>{{768, 12}, {72, 3}, {128, 4}})
        all.push_back({type, "gpt2", positions, width, heads});
      for (const char* composed : {"xland", "vintix", "pre_norm_previous"})
        all.push_back({type, composed, positions, 512, 8});
    }
    all.push_back({type, "vintix_transition", LossPositions::kAll, 512, 8});
    for (const char* streaming : {"pre_norm", "post_norm"})
      all.push_back({type, streaming, LossPositions::kAll, 64, 1});
    all.push_back({type, "gpt2", LossPositions::kAll, 64, 4});
    if (type == at::kHalf) {
      all.push_back({type, "pre_norm", LossPositions::kLast, 64, 4});
      continue;
    }
    for (const char* composed : {"vintix", "pre_norm_previous", "vintix_transition"})
      all.push_back({type, composed, LossPositions::kAll, 64, 2});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Networks, BlockBySublayers, ::testing::ValuesIn(cases()), [](const auto& tested) {
  const Case& tried = tested.param;
  return tried.variant + "_" + std::to_string(tried.width) +
         (tried.positions == LossPositions::kAll ? "_all_" : "_last_") + c10::toString(tried.type);
});

}  // namespace
}  // namespace adtrain
