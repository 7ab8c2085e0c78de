#include "model/FrozenParameters.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/FlatLayout.h"
#include "collectives/SingleCommunicator.h"
#include "model/AnySpaceBatch.h"
#include "model/RandomBatch.h"
#include "parallel/GradientReducer.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string error_of(AlgorithmDistillation& model, const std::string& patterns) {
  try {
    freeze(model.parameters(), patterns, "run.yaml:3: freeze");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(FrozenParameters, PatternsFitNamesAndModules) {
  const auto frozen_by = [](const std::string& patterns) {
    const auto model = testing::small_model(testing::variant("pre_norm"));
    freeze(model->parameters(), patterns, "freeze");
    return frozen_modules(model->parameters());
  };
  EXPECT_THAT(frozen_by(""), IsEmpty());
  EXPECT_THAT(frozen_by("transformer.blocks.0"), ElementsAre("transformer.blocks.0"));
  EXPECT_THAT(frozen_by("transformer.blocks.[0-1], embed_*"),
              ElementsAre("embed_context", "embed_query_state", "transformer"));
  EXPECT_THAT(frozen_by("*.norm_?"),
              ElementsAre("transformer.blocks.0.norm_1", "transformer.blocks.0.norm_2",
                          "transformer.blocks.1.norm_1", "transformer.blocks.1.norm_2"));
  EXPECT_THAT(frozen_by("pred_action.bias"), ElementsAre("pred_action.bias"));
  EXPECT_THAT(frozen_by("*.attn.bias,pred_action.bias"),
              ElementsAre("transformer.blocks.0.attn.attn.bias", "transformer.blocks.1.attn.attn.bias",
                          "pred_action.bias"));
}

TEST(FrozenParameters, WhatFitsNothingOrLeavesNothingIsAnErrorThatNamesWhatThereIs) {
  const auto model = testing::small_model(testing::variant("pre_norm"));
  EXPECT_THAT(error_of(*model, "transformer.block.0,pred_action"),
              AllOf(HasSubstr("run.yaml:3: freeze: found 'transformer.block.0', which fits no parameter"),
                    HasSubstr("did you mean transformer.blocks.0?")));
  EXPECT_THAT(error_of(*model, "qqqqqqqqqqqqqqqqqq"), HasSubstr("there are embed_context.weight, "));
  // A number does not stand for those that begin with it, and nothing is half done.
  EXPECT_THAT(error_of(*model, "pred_action, transformer.blocks"), "no error");
  const auto again = testing::small_model(testing::variant("pre_norm"));
  EXPECT_THAT(error_of(*again, "pred_action,transformer.blocks.0.mlp.swiglu.w"),
              HasSubstr("'transformer.blocks.0.mlp.swiglu.w'"));
  EXPECT_THAT(again->parameters().frozen_names(), IsEmpty());
  EXPECT_THAT(error_of(*again, "*"), AllOf(HasSubstr("freezes all"), HasSubstr("such as pred_action.bias")));
}

TEST(FrozenParameters, WhatTrainsIsOneStretchOfTheFlatTensorAndAllValuesStay) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto model = testing::small_model(testing::variant("post_norm"));
    ParameterBuffer& parameters = model->parameters();
    const std::vector<at::Tensor> leaves = parameters.leaves();
    std::vector<at::Tensor> before;
    for (const auto& [name, view] : parameters.named()) before.push_back(view.clone());
    freeze(parameters, "transformer_encoder.layers.1,embed_context.bias,pos_embedding", "freeze");
    parameters.to(at::kCPU, type);
    const std::vector<NamedTensor> named = parameters.named();
    const at::Tensor trained = parameters.trained_of(parameters.flat());
    const FlatLayout layout = FlatLayout::of(parameters.trained_leaves());
    EXPECT_EQ(trained.numel(), layout.total());
    EXPECT_LT(trained.numel(), parameters.flat().numel());
    EXPECT_TRUE(trained.is_alias_of(parameters.flat()));
    const std::vector<NamedTensor> views = parameters.trained_views_of(trained);
    const std::vector<std::string> frozen = parameters.frozen_names();
    EXPECT_EQ(frozen.size(), 14U);
    size_t next = 0;
    int64_t count = 0;
    for (size_t i = 0; i < named.size(); ++i) {
      EXPECT_TRUE(at::equal(named[i].tensor, before[i])) << named[i].name;
      EXPECT_TRUE(at::equal(leaves[i], before[i].to(type))) << named[i].name;
      const bool is_frozen = std::ranges::find(frozen, named[i].name) != frozen.end();
      EXPECT_EQ(leaves[i].requires_grad(), !is_frozen);
      if (is_frozen) continue;
      EXPECT_EQ(views.at(next).name, named[i].name);
      EXPECT_TRUE(views[next].tensor.is_alias_of(named[i].tensor));
      EXPECT_EQ(views[next].tensor.data_ptr(), named[i].tensor.data_ptr());
      EXPECT_EQ(trained.data_ptr<float>() + layout.offset(next), named[i].tensor.data_ptr<float>());
      EXPECT_TRUE(leaves[i].is_same(parameters.trained_leaves()[next]));
      count += leaves[i].numel();
      ++next;
    }
    EXPECT_THAT(views, SizeIs(next));
    EXPECT_EQ(parameters.trained_count(), count);
    EXPECT_EQ(parameters.trained_of(parameters.low_precision()).defined(), type != at::kFloat);
  }
}

TEST(FrozenParameters, BlocksInFrontOfWhatTrainsHaveNoBackwardPass) {
  const auto remaining = [](const std::string& name, const std::string& patterns) {
    const testing::Variant variant = testing::variant(name);
    const auto model = AlgorithmDistillation::without_values(variant.options, ModelShape{});
    freeze(model->parameters(), patterns, "freeze");
    return remaining_backward(variant.options, model->parameters());
  };
  EXPECT_EQ(remaining("pre_norm", "").forward_only, 0);
  EXPECT_EQ(remaining("pre_norm", "embed_*,*.blocks.0").forward_only, 1);
  EXPECT_EQ(remaining("pre_norm", "embed_*,transformer").forward_only, 2);
  EXPECT_EQ(remaining("pre_norm", "*.blocks.0").forward_only, 0) << "embeddings train";
  EXPECT_EQ(remaining("gpt2", "embed_*,transformer.wpe,transformer.h").forward_only, 2)
      << "its last norm trains";
  EXPECT_EQ(remaining("vintix", "blocks,embed_*,first_*").forward_only, 2);
  // The markers of compressed context are nothing to a plain network.
  const std::string but_markers = "embed_*,token_type_embedding,pos_embedding,transformer_encoder";
  EXPECT_EQ(remaining("post_norm", but_markers).forward_only, 2);
  EXPECT_EQ(remaining("compressed", but_markers).forward_only, 0);
  const RemainingBackward partly = remaining("pre_norm", "*.blocks.0, *.blocks.1.norm_1");
  EXPECT_THAT(partly.partly, ElementsAre(0, 1));
  EXPECT_GT(partly.largest_partly_bytes, 4 * 10 * 16 * 16);
}

/// Each parameter is frozen or not, by chance; at least one trains that every loss reads.
std::set<std::string> random_choice(const ParameterBuffer& parameters, std::mt19937& random) {
  std::set<std::string> frozen;
  const std::vector<NamedTensor> all = parameters.named();
  for (const auto& [name, tensor] : all) {
    if (random() % 2 == 0 && name != all.back().name) frozen.insert(name);
  }
  return frozen;
}

struct Case {
  std::string name;
  ModelOptions options;
  std::optional<testing::SpaceVariant> of_space = std::nullopt;  ///< none: a grid family's network
};

class FrozenNetwork : public ::testing::TestWithParam<Case> {
 protected:
  static std::unique_ptr<AlgorithmDistillation> created(Recompute recompute) {
    ModelOptions options = GetParam().options;
    options.recompute = recompute;
    const ModelShape shape = GetParam().of_space ? GetParam().of_space->shape() : ModelShape{};
    return AlgorithmDistillation::create(options, shape, 7);
  }
  static Batch random_batch() {
    if (GetParam().of_space) return testing::random_rows(*GetParam().of_space, 3, 9);
    if (GetParam().options.compressed()) return testing::random_compressed({0, 4, 4}, {4, 2, 0}, 4);
    return testing::random_plain(3, 9);
  }
};

/// The definition of what is right: gradients of the whole network, of which those that train are taken.
TEST_P(FrozenNetwork, GradientsOfWhatTrainsAreThoseOfTheWholeNetwork) {
  std::mt19937 random(fresh_seed());
  for (const Recompute recompute : {Recompute::kNone, Recompute::kMlp, Recompute::kBlock}) {
    const auto whole = created(recompute), partly = created(recompute);
    const std::set<std::string> frozen = random_choice(partly->parameters(), random);
    SCOPED_TRACE(::testing::PrintToString(frozen));
    partly->parameters().freeze(frozen);
    SingleCommunicator alone(at::kCPU);
    GradientReducer reducer(partly->parameters().trained_leaves(), alone, {});
    partly->send_gradients_to(&reducer);
    const Batch batch = random_batch();
    at::manual_seed(5);
    const at::Tensor expected =
        testing::flat_gradient(*whole, whole->loss(batch, LossPositions::kLast, /*training=*/true).sum);
    at::manual_seed(5);
    reducer.begin_micro_step(true);
    partly->loss(batch, LossPositions::kLast, /*training=*/true).sum.backward();
    reducer.finish();
    std::set<std::string> compared;
    const std::vector<NamedTensor> found = partly->parameters().trained_views_of(reducer.flat_gradient());
    for (const auto& [name, view] : whole->parameters().views_of(expected)) {
      for (const auto& [trained, gradient] : found) {
        if (trained != name) continue;
        EXPECT_TRUE(at::allclose(gradient, view, 1e-5, 1e-7)) << name;
        compared.insert(name);
      }
    }
    EXPECT_EQ(compared.size() + frozen.size(), whole->parameters().named().size());
    for (const at::Tensor& leaf : partly->parameters().leaves())
      EXPECT_EQ(leaf.grad().defined(), leaf.requires_grad());
  }
}

TEST(FrozenParameters, ABatchMayLackTheGroupOfSpacesThatTrains) {
  const testing::GroupedVariant variant = testing::grouped_variants()[0];
  const auto model = AlgorithmDistillation::create(variant.groups[0].options, variant.shape(), 3);
  std::set<std::string> frozen;
  for (const auto& [name, tensor] : model->parameters().named()) {
    if (!name.starts_with("groups.second.pred_action")) frozen.insert(name);
  }
  model->parameters().freeze(frozen);
  SingleCommunicator alone(at::kCPU);
  GradientReducer reducer(model->parameters().trained_leaves(), alone, {});
  model->send_gradients_to(&reducer);
  for (const size_t group : {0, 1}) {
    Batch batch;
    batch.parts = {testing::random_rows(variant.groups[group], 2, 9)};
    batch.parts[0].group = static_cast<int64_t>(group);
    reducer.begin_micro_step(true);
    const at::Tensor loss = model->loss(batch, LossPositions::kLast, /*training=*/true).sum;
    EXPECT_EQ(loss.requires_grad(), group == 1);
    if (group == 1) loss.backward();
    reducer.finish();
    EXPECT_EQ(reducer.flat_gradient().abs().max().item<double>() > 0, group == 1);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const testing::Variant& variant : testing::plain_variants())
    all.push_back({variant.name, variant.options});
  all.push_back({"compressed", testing::variant("compressed").options});
  for (const testing::SpaceVariant& variant : testing::space_variants())
    all.push_back({variant.name, variant.options, variant});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Networks, FrozenNetwork, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace adtrain
