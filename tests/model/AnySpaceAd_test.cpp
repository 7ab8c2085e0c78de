// Networks over tasks of any space. Their logits, losses and gradients against PyTorch are tests/interop's.

#include <algorithm>
#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "model/AnySpaceBatch.h"
#include "model/NetworkPlan.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using testing::flat_gradient;
using ::testing::HasSubstr;
using testing::random_rows;
using testing::relative_error;
using testing::small_model;
using testing::space_variant;
using testing::space_variants;
using testing::SpaceVariant;
using testing::window;

constexpr int64_t kLength = 9;

SpaceVariant variant_called(const std::string& name) {
  for (const SpaceVariant& each : space_variants()) {
    if (each.name == name) return each;
  }
  throw std::runtime_error("no variant " + name);
}

at::Tensor everywhere(AlgorithmDistillation& model, const Batch& batch) {
  const at::NoGradGuard no_grad;
  return model.forward(batch, LossPositions::kAll, false).actions;
}

TEST(AnySpaceAd, EachQuerysPredictionIsThatOfThePrefixAskedAlone) {
  for (const SpaceVariant& each : space_variants()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    const Batch batch = random_rows(each, 3, kLength);
    const at::Tensor all = everywhere(*model, batch);
    for (int64_t i = 0; i < kLength; ++i) {
      const at::Tensor alone = model->predict(window(batch, 0, i + 1)).actions;
      EXPECT_EQ(alone.scalar_type(), at::kFloat);
      EXPECT_LT(relative_error(all.select(1, i), alone), 1e-5) << "query " << i;
    }
  }
}

TEST(AnySpaceAd, LossAndGradientsAreTheSumsOverPrefixes) {
  for (const SpaceVariant& each : space_variants()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    const Batch batch = random_rows(each, 2, kLength);
    const auto loss = model->loss(batch, LossPositions::kAll, false);
    EXPECT_EQ(loss.targets, 2 * kLength);
    const at::Tensor all = flat_gradient(*model, loss.sum);
    at::Tensor sum = at::zeros_like(all), losses = at::zeros_like(loss.sum);
    for (int64_t i = 1; i <= kLength; ++i) {
      const auto alone = model->loss(window(batch, 0, i), LossPositions::kLast, false);
      EXPECT_EQ(alone.targets, 2);
      sum += flat_gradient(*model, alone.sum);
      losses += alone.sum.detach();
    }
    EXPECT_LT(relative_error(loss.sum.detach(), losses), 1e-5);
    EXPECT_LT(relative_error(all, sum), 1e-5);
  }
}

TEST(AnySpaceAd, NothingBehindAQueryReachesIt) {
  constexpr int64_t kChanged = 5;
  for (const SpaceVariant& each : space_variants()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    const Batch batch = random_rows(each, 2, kLength);
    Batch changed = random_rows(each, 2, kLength);
    changed.before_action = batch.before_action;
    changed.before_reward = batch.before_reward;
    changed.state_mean = batch.state_mean;
    changed.state_deviation = batch.state_deviation;
    const auto keep = [](const at::Tensor& to, const at::Tensor& from, int64_t steps) {
      at::Tensor(to).narrow(1, 0, steps).copy_(from.narrow(1, 0, steps));
    };
    keep(changed.states, batch.states, kChanged + 1);
    keep(changed.begins, batch.begins, kChanged + 1);
    keep(changed.actions, batch.actions, kChanged);
    keep(changed.rewards, batch.rewards, kChanged);
    const at::Tensor before = everywhere(*model, batch), after = everywhere(*model, changed);
    EXPECT_LT(relative_error(after.narrow(1, 0, kChanged + 1), before.narrow(1, 0, kChanged + 1)), 1e-6);
    for (int64_t i = kChanged + 1; i < kLength; ++i) {
      EXPECT_GT((after - before).select(1, i).abs().max().item<double>(), 1e-5) << "query " << i;
    }
  }
}

TEST(AnySpaceAd, TheFirstTokenOfAWindowHoldsWhatCameBeforeIt) {
  for (SpaceVariant each : space_variants()) {
    SCOPED_TRACE(each.name);
    each.options.pieces.positions = PositionKind::kNone;
    const auto model = small_model(each);
    const Batch batch = random_rows(each, 2, kLength);
    const Batch cut = window(batch, 4, 1);
    Batch other = cut;
    const at::Tensor alone = model->predict(cut).actions;
    other.before_action = testing::random_of(each.spaces.action, {2});
    other.before_reward = cut.before_reward + 1;
    other.begins = at::zeros_like(cut.begins);
    EXPECT_GT(relative_error(model->predict(other).actions, alone), 1e-5);
  }
}

TEST(AnySpaceAd, LearnedFeaturesStandWhereAnEpisodeBegins) {
  for (const std::string name : {"any_space_vintix", "any_space_channels"}) {
    SCOPED_TRACE(name);
    const SpaceVariant each = variant_called(name);
    const auto model = small_model(each);
    Batch batch = random_rows(each, 2, 1);
    batch.begins = at::ones_like(batch.begins);
    Batch other = batch;
    other.before_action = testing::random_of(each.spaces.action, {2});
    other.before_reward = batch.before_reward + 1;
    EXPECT_TRUE(at::equal(model->predict(batch).actions, model->predict(other).actions));
    const at::Tensor gradient = flat_gradient(*model, model->loss(batch, LossPositions::kAll, false).sum);
    for (const auto& [parameter, view] : model->parameters().views_of(gradient)) {
      const double largest = view.abs().max().item<double>();
      const bool replaced = parameter.starts_with("action.") || parameter.starts_with("reward.");
      EXPECT_FALSE(replaced && largest > 0) << parameter;
      EXPECT_FALSE(parameter.starts_with("first_") && largest == 0) << parameter;
    }
  }
}

TEST(AnySpaceAd, WithoutLearnedFeaturesAnEpisodesBeginningChangesNothing) {
  const SpaceVariant each = variant_called("any_space_xland");
  const auto model = small_model(each);
  Batch batch = random_rows(each, 2, kLength);
  const at::Tensor before = everywhere(*model, batch);
  batch.begins = 1 - batch.begins;
  EXPECT_TRUE(at::equal(before, everywhere(*model, batch)));
}

TEST(AnySpaceAd, PackedObservationsAreThoseOfTheirDigits) {
  const SpaceVariant packed = variant_called("any_space_xland");
  SpaceVariant apart = packed;
  apart.spaces.observation = Space::multi_discrete({5, 5, 2}, testing::repeated({13, 12}, 25));
  apart.spaces.packed_digits.clear();
  for (const auto kind : {ObservationEncoderKind::kConvolution, ObservationEncoderKind::kEmbedding}) {
    SpaceVariant first = packed, second = apart;
    first.options.space_pieces.observation_encoder = second.options.space_pieces.observation_encoder = kind;
    Batch batch = random_rows(first, 2, kLength);
    const at::Tensor of_packed = everywhere(*small_model(first), batch);
    const at::Tensor numbers = batch.states.to(at::kLong);
    batch.states = at::stack({numbers.div(12, "floor"), numbers.remainder(12)}, -1);
    EXPECT_TRUE(at::equal(of_packed, everywhere(*small_model(second), batch)));
  }
}

TEST(AnySpaceAd, NumbersCountFromTheirStart) {
  for (const std::string name : {"any_space_vintix_whole", "any_space_digits", "any_space_channels"}) {
    SCOPED_TRACE(name);
    const SpaceVariant each = variant_called(name);
    SpaceVariant from_zero = each;
    Batch batch = random_rows(each, 2, kLength);
    const auto loss = small_model(each)->loss(batch, LossPositions::kAll, false);
    const auto shift = [](Space& space, at::Tensor& numbers) {
      numbers = numbers - at::tensor(space.start, at::kLong).view(space.shape);
    };
    shift(from_zero.spaces.observation, batch.states);
    shift(from_zero.spaces.action, batch.actions);
    shift(from_zero.spaces.action, batch.before_action);
    for (Space* space : {&from_zero.spaces.observation, &from_zero.spaces.action})
      space->start.assign(space->start.size(), 0);
    const auto expected = small_model(from_zero)->loss(batch, LossPositions::kAll, false);
    EXPECT_TRUE(at::equal(loss.sum, expected.sum));
    EXPECT_TRUE(at::equal(loss.correct, expected.correct));
  }
}

TEST(AnySpaceAd, TheZerosBeforeAHistoryCountAsTheFirstAction) {
  const SpaceVariant each = variant_called("any_space_vintix_whole");
  const auto model = small_model(each);
  Batch batch = random_rows(each, 2, 1);
  batch.begins.zero_();
  batch.before_action = at::zeros_like(batch.before_action);
  const at::Tensor found = model->predict(batch).actions;
  batch.before_action = at::tensor({1, 0, 1, 0}, at::kLong).view({2, 2});
  EXPECT_TRUE(at::equal(found, model->predict(batch).actions));
}

TEST(AnySpaceAd, ObservationsAreNormalisedByWhatTheBatchSays) {
  const SpaceVariant each = variant_called("any_space_vintix");
  const auto model = small_model(each);
  Batch batch = random_rows(each, 2, kLength);
  const at::Tensor found = everywhere(*model, batch);
  batch.states = (batch.states - batch.state_mean.unsqueeze(1)) / batch.state_deviation.unsqueeze(1);
  batch.state_mean = batch.state_deviation = at::Tensor();
  EXPECT_LT(relative_error(found, everywhere(*model, batch)), 1e-6);
}

TEST(AnySpaceAd, CorrectIsTheWholeActionAndUndefinedForRealNumbers) {
  for (const SpaceVariant& each : space_variants()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    const Batch batch = random_rows(each, 40, kLength);
    const auto loss = model->loss(batch, LossPositions::kAll, false);
    if (each.spaces.action.kind == Space::Kind::kBox) {
      EXPECT_FALSE(loss.correct.defined());
      continue;
    }
    const at::Tensor logits = everywhere(*model, batch);
    at::Tensor right = at::ones({40, kLength}, at::kBool);
    const Space& space = each.spaces.action;
    const at::Tensor actions = batch.actions.reshape({40, kLength, -1});
    for (int64_t element = 0, first = 0; element < space.size(); ++element) {
      const int64_t values = space.values[element];
      const at::Tensor best = logits.narrow(-1, first, values).argmax(-1) + space.start[element];
      right = right.logical_and(best.eq(actions.select(-1, element)));
      first += values;
    }
    EXPECT_EQ(loss.correct.item<int64_t>(), right.sum().item<int64_t>());
  }
}

TEST(AnySpaceAd, GaussianDeviationsAreBoundedWhateverTheNetworkSays) {
  const SpaceVariant each = variant_called("any_space_gaussian");
  const auto model = small_model(each);
  at::Tensor flat = model->parameters().flat();
  flat.mul_(1e4);
  const at::Tensor found = everywhere(*model, random_rows(each, 20, kLength)).narrow(-1, 2, 2);
  EXPECT_GE(found.min().item<double>(), -5);
  EXPECT_LE(found.max().item<double>(), 5);
  EXPECT_LT(found.min().item<double>(), found.max().item<double>());
}

TEST(AnySpaceAd, LossAndGradientsIn16BitsAreNearThoseIn32) {
  const std::map<at::ScalarType, double> tolerances = {{at::kBFloat16, 5e-2}, {at::kHalf, 1e-2}};
  for (SpaceVariant each : space_variants()) {
    each.options.tf_n_embd = 64;  // norms of a few features alone divide by what may be next to nothing
    // Rounding to the other side of LeakyReLU's kink changes a gradient a hundredfold.
    const double kinks = each.options.transformer_block == TransformerBlock::kVintix ? 0.15 : 0;
    for (const auto& [type, tolerance] : tolerances) {
      SCOPED_TRACE(each.name + ", " + c10::toString(type));
      const auto exact = small_model(each), rounded = small_model(each);
      rounded->parameters().to(at::kCPU, type);
      const Batch batch = random_rows(each, 6, kLength);
      const auto expected = exact->loss(batch, LossPositions::kAll, false);
      const auto found = rounded->loss(batch, LossPositions::kAll, false);
      EXPECT_EQ(found.sum.scalar_type(), at::kFloat);
      const double scale = std::max(std::abs(expected.sum.item<double>()), 1.0 * kLength);
      EXPECT_NEAR(found.sum.item<double>(), expected.sum.item<double>(), tolerance * scale);
      const at::Tensor gradient = flat_gradient(*exact, expected.sum);
      const at::Tensor error = flat_gradient(*rounded, found.sum) - gradient;
      EXPECT_LT((error.norm() / gradient.norm()).item<double>(), tolerance + kinks);
    }
  }
}

TEST(AnySpaceAd, XlandsShapeHasThePublishedParameters) {
  SpaceVariant xland = space_variant("", TransformerBlock::kXland, testing::xland_spaces());
  xland.options.tf_n_embd = 512;
  xland.options.tf_n_layer = xland.options.tf_n_head = 8;
  const auto model = AlgorithmDistillation::without_values(xland.options, xland.shape());
  EXPECT_EQ(model->parameters().count(), 25'323'686);
}

TEST(AnySpaceAd, VintixsShapeHasThePublishedParametersOfOneGroup) {
  constexpr int64_t kWidth = 1024, kLayers = 20, kHead = 64, kHalf = 511, kSeen = 39, kDone = 4;
  SpaceVariant vintix = space_variant("", TransformerBlock::kVintix,
                                      {testing::vector_of({kSeen}), testing::vector_of({kDone}), {}});
  vintix.options.tf_n_embd = kWidth;
  vintix.options.tf_n_layer = kLayers;
  vintix.options.tf_n_head = kWidth / kHead;
  const auto linear = [](int64_t in, int64_t out) { return in * out + out; };
  const auto mlp = [&](int64_t in) { return linear(in, kHalf) + linear(kHalf, kHalf) + 2 * 2 * kHalf; };
  const int64_t block = linear(kWidth, 3 * kWidth) + linear(kWidth, kWidth) + linear(kWidth, 4 * kWidth) +
                        linear(4 * kWidth, kWidth) + 2 * 2 * kWidth + 2 * 2 * kHead;
  const int64_t group =
      mlp(kSeen) + mlp(kDone) + linear(1, 2) + 3 * linear(kWidth, kWidth) + linear(kWidth, kDone);
  const auto model = AlgorithmDistillation::without_values(vintix.options, vintix.shape());
  EXPECT_EQ(model->parameters().count(), kLayers * block + 2 * kWidth + group + kHalf + 2);
}

TEST(AnySpaceAd, WhatDoesNotFitIsRefusedByName) {
  const TaskSpaces whole = testing::xland_spaces(),
                   real = {testing::vector_of({7}), testing::vector_of({3}), {}};
  const auto refusal = [](TaskSpaces spaces,
                          const std::function<void(ModelOptions&)>& change) -> std::string {
    SpaceVariant each = space_variant("", TransformerBlock::kPreNorm, std::move(spaces));
    change(each.options);
    try {
      small_model(each);
      return "nothing";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal(whole, [](ModelOptions&) {}), "nothing");
  EXPECT_EQ(refusal(real, [](ModelOptions&) {}), "nothing");
  using Encoder = ObservationEncoderKind;
  EXPECT_THAT(refusal(whole, [](ModelOptions& o) { o.space_pieces.observation_encoder = Encoder::kMlp; }),
              HasSubstr("observation_encoder: found mlp with observations of MultiDiscrete((5, 5)"));
  EXPECT_THAT(
      refusal(real, [](ModelOptions& o) { o.space_pieces.observation_encoder = Encoder::kConvolution; }),
      HasSubstr("observation_encoder: found convolution with observations of Box((7,)"));
  TaskSpaces small = whole;
  small.observation = Space::multi_discrete({3, 5}, {156});
  EXPECT_THAT(
      refusal(small, [](ModelOptions& o) { o.space_pieces.observation_encoder = Encoder::kConvolution; }),
      HasSubstr("need a grid of 4 × 4 cells or more"));
  TaskSpaces image = real;
  image.observation = testing::vector_of({8, 8, 3});
  EXPECT_THAT(refusal(image, [](ModelOptions&) {}),
              HasSubstr("there is no encoder of images: linear or mlp"));
  EXPECT_EQ(refusal(image, [](ModelOptions& o) { o.space_pieces.observation_encoder = Encoder::kMlp; }),
            "nothing");
  EXPECT_THAT(
      refusal(whole, [](ModelOptions& o) { o.space_pieces.action_head = ActionHeadKind::kGaussian; }),
      HasSubstr("action_head: found gaussian with actions of Discrete(6); expected auto or cross_entropy"));
  EXPECT_THAT(
      refusal(real, [](ModelOptions& o) { o.space_pieces.action_head = ActionHeadKind::kCrossEntropy; }),
      HasSubstr("action_head: found cross_entropy with actions of Box((3,)"));
  TaskSpaces wide = whole;
  wide.packed_digits = {12, 12};
  EXPECT_THAT(refusal(wide, [](ModelOptions&) {}),
              HasSubstr("observation_packing: found 12, 12, which are 144 values at most"));
  TaskSpaces packed_box = real;
  packed_box.packed_digits = {2, 2};
  EXPECT_THAT(refusal(packed_box, [](ModelOptions&) {}), HasSubstr("only whole numbers hold digits"));
  EXPECT_THAT(refusal(whole, [](ModelOptions& o) { o.use_compressed_context = true; }),
              HasSubstr("use_compressed_context: found compressed context with tasks of your own"));
}

TEST(AnySpaceAd, WeightsOfOtherSpacesAreRefusedByTheirTensors) {
  const auto model = small_model(variant_called("any_space_discrete"));
  SpaceVariant other = variant_called("any_space_discrete");
  other.spaces.observation = Space::discrete(12);
  const auto weights = small_model(other);
  try {
    model->parameters().load(weights->parameters().named());
    FAIL() << "loaded";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("observation.embed_1.weight"));
  }
}

TEST(AnySpaceAd, OnAGpuTheLossIsFusedWhereAnActionIsOneChoice) {
  const auto is_fused = [](const SpaceVariant& each, const ModelShape& shape) {
    ModelOptions options = each.options.of_own_tasks();
    options.tf_n_embd = 32;
    return plan_of(options, shape, LossPositions::kAll, kernels::DeviceTraits::hopper(), at::kBFloat16,
                   /*quantised=*/false)
        .fused_loss();
  };
  std::vector<std::string> fused;
  for (const SpaceVariant& each : space_variants()) {
    if (is_fused(each, each.shape())) fused.push_back(each.name);
  }
  EXPECT_THAT(fused, ::testing::ElementsAre("any_space_xland", "any_space_discrete", "any_space_channels"));
  const SpaceVariant of_choices = variant_called("any_space_discrete");
  ModelShape groups = of_choices.shape();
  groups.spaces.push_back(variant_called("any_space_gaussian").spaces);
  EXPECT_FALSE(is_fused(of_choices, groups)) << "actions of the second group are real numbers";
}

TEST(AnySpaceAd, AttentionDropoutDecidesBetweenOwnAttentionAndCudnns) {
  const SpaceVariant variant = variant_called("any_space_xland");
  ModelOptions options = variant.options.of_own_tasks();
  options.tf_n_embd = 512, options.tf_n_head = 8, options.n_transit = 4096;
  options.pieces.positions = PositionKind::kNone;
  options.tf_dropout = 0.1;
  for (const double rate : {0.0, 0.1}) {
    options.tf_attn_dropout = rate;
    const kernels::KernelPlan plan =
        plan_of(options, variant.shape(), LossPositions::kAll, kernels::DeviceTraits::hopper(), at::kBFloat16,
                /*quantised=*/false);
    EXPECT_EQ(plan.own_attention(), rate > 0);
    EXPECT_EQ(plan.cudnn_attention(), rate == 0);
  }
}

TEST(AnySpaceAd, ThePlanSaysThatPlainOperatorsRunIt) {
  const auto model = small_model(variant_called("any_space_xland"));
  EXPECT_EQ(model->plan(LossPositions::kAll).blocks(), kernels::KernelPlan::Blocks::kLibrary);
}

}  // namespace
}  // namespace adtrain
