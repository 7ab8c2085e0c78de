// What is particular to networks of chosen pieces. Their logits and gradients against PyTorch are
// tests/interop's.

#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/Attention.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using testing::relative_error;

/// One query at a time, by the definition of ALiBi and TokenStreams, in float64.
at::Tensor attended_plainly(const at::Tensor& qkv, const TokenStreams& streams) {
  const int64_t heads = qkv.size(2), size = qkv.size(4), tokens = streams.tokens();
  const at::Tensor numbers = qkv.to(at::kDouble);
  at::Tensor out = at::zeros({qkv.size(1), tokens, heads * size}, at::kDouble);
  for (int64_t row = 0; row < qkv.size(1); ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      const double slope = std::pow(2.0, -8.0 * static_cast<double>(head + 1) / static_cast<double>(heads));
      const auto of = [&](int64_t kind) { return numbers[kind][row][head]; };
      for (int64_t token = 0; token < tokens; ++token) {
        const bool is_query = token >= streams.context;
        const int64_t position = is_query ? token - streams.queries : token;
        std::vector<at::Tensor> scores, values;
        for (int64_t key = 0; key <= position; ++key) {
          const int64_t read = key == position ? token : key;
          const at::Tensor product = of(0)[token].dot(of(1)[read]) / std::sqrt(static_cast<double>(size));
          scores.push_back(product - slope * static_cast<double>(position - key));
          values.push_back(of(2)[read]);
        }
        out[row][token].narrow(0, head * size, size) =
            at::softmax(at::stack(scores), 0).matmul(at::stack(values));
      }
    }
  }
  return out;
}

class Alibi : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(Alibi, AttentionIsTheDefinitionsInOneAndTwoStreams) {
  const double tolerance = GetParam() == at::kFloat ? 1e-5 : GetParam() == at::kHalf ? 5e-3 : 3e-2;
  for (const int64_t heads : {2, 3}) {
    for (const int64_t queries : {0, 11}) {
      const at::Tensor qkv = at::randn({3, 2, heads, 11 + queries, 8}, at::kFloat).to(GetParam());
      const TokenStreams streams = {.context = 11, .queries = queries};
      const at::Tensor expected = attended_plainly(qkv, streams);
      const at::Tensor scores = alibi_scores(heads, streams, qkv);
      for (const int64_t rows : {streams.tokens(), int64_t{5}, int64_t{1}}) {
        const at::Tensor found = attend_with_scores(qkv, rows, scores, 0.0);
        EXPECT_LT(relative_error(found.to(at::kDouble), last_of(expected, 1, rows)), tolerance)
            << heads << " heads, " << queries << " queries, " << rows << " rows";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Alibi, ::testing::Values(at::kFloat, at::kHalf, at::kBFloat16),
                         [](const auto& tested) { return std::string(c10::toString(tested.param)); });

TEST(ComposedAd, LossAndGradientsIn16BitsAreNearThoseIn32) {
  const std::map<at::ScalarType, double> tolerances = {{at::kBFloat16, 8e-2}, {at::kHalf, 1e-2}};
  for (const std::string& name : testing::composed_names()) {
    for (const auto& [type, tolerance] : tolerances) {
      SCOPED_TRACE(name + ", " + c10::toString(type));
      const auto exact = testing::small_model(testing::variant(name));
      const auto rounded = testing::small_model(testing::variant(name));
      rounded->parameters().to(at::kCPU, type);
      const Batch batch = testing::random_plain(6, 9);
      const at::Tensor expected = exact->loss(batch, LossPositions::kAll, false).sum;
      const at::Tensor found = rounded->loss(batch, LossPositions::kAll, false).sum;
      EXPECT_LT(relative_error(found, expected), tolerance);
      EXPECT_LT(
          relative_error(testing::flat_gradient(*rounded, found), testing::flat_gradient(*exact, expected)),
          tolerance);
    }
  }
}

TEST(ComposedAd, APreviousTokenReadsNoNextStateAndNotTheLastActionAndReward) {
  const auto model = testing::small_model(testing::variant("xland"));
  const Batch batch = testing::random_plain(3, 9);
  Batch other = testing::random_plain(3, 9);
  other.states = batch.states;
  other.actions.narrow(1, 0, 8).copy_(batch.actions.narrow(1, 0, 8));
  other.rewards.narrow(1, 0, 8).copy_(batch.rewards.narrow(1, 0, 8));
  const at::NoGradGuard no_grad;
  const auto logits = [&](const Batch& asked) {
    return model->forward(asked, LossPositions::kAll, false).actions;
  };
  EXPECT_TRUE(at::equal(logits(batch), logits(other)));
}

TEST(ComposedAd, TheFirstStepIsThatOfActionAndRewardZeroOrLearned) {
  Batch batch = testing::random_plain(2, 1);
  const auto zeros = testing::small_model(testing::variant("xland"));
  const auto learned = testing::small_model(testing::variant("vintix"));
  const auto gradient_of = [&](AlgorithmDistillation& model, const std::string& name) {
    const at::Tensor flat = testing::flat_gradient(model, model.loss(batch, LossPositions::kAll, false).sum);
    for (const auto& [found, view] : model.parameters().views_of(flat)) {
      if (found == name) return view;
    }
    throw std::runtime_error("no parameter " + name);
  };
  const at::Tensor of_actions = gradient_of(*zeros, "embed_action.weight");
  EXPECT_GT(of_actions[0].abs().max().item<double>(), 0);
  EXPECT_EQ(of_actions.narrow(0, 1, 4).abs().max().item<double>(), 0);
  EXPECT_GT(gradient_of(*learned, "first_action").abs().max().item<double>(), 0);
  EXPECT_GT(gradient_of(*learned, "first_reward").abs().max().item<double>(), 0);
  EXPECT_EQ(gradient_of(*learned, "embed_action.weight").abs().max().item<double>(), 0);
}

TEST(ComposedAd, DropoutOfXlandActsOnTheEmbeddedTokensAlone) {
  auto chosen = testing::variant("xland");
  chosen.options.tf_n_layer = 1;
  chosen.options.tf_dropout = 0.5;
  chosen.options.tf_attn_dropout = 0;
  const auto model = testing::small_model(chosen);
  at::Tensor flat = model->parameters().flat();
  for (const auto& [name, view] : model->parameters().named()) {
    // Blocks that add nothing: the head reads the embedded tokens, half of whose features are zeros.
    if (name.starts_with("blocks.0.attention.out") || name.starts_with("blocks.0.mlp.down"))
      at::Tensor(view).zero_();
    if (name == "embed_token.bias") at::Tensor(view).fill_(1);
    if (name == "embed_token.weight") at::Tensor(view).zero_();
    if (name == "pred_action.weight") at::Tensor(view).fill_(1);
  }
  const at::NoGradGuard no_grad;
  const at::Tensor dropped =
      model->forward(testing::random_plain(50, 9), LossPositions::kAll, true).actions.select(-1, 0) / 2;
  // Each logit is twice the number of the 16 features that were kept.
  EXPECT_TRUE(at::allclose(dropped, dropped.round()));
  EXPECT_NEAR(dropped.mean().item<double>(), 8, 0.5);
  EXPECT_NEAR(dropped.std().item<double>(), 2, 0.3);
}

TEST(ComposedAd, ThePlanSaysThatPlainOperatorsRunItAndWhy) {
  const auto model = testing::small_model(testing::variant("xland"));
  const kernels::KernelPlan& plan = model->plan(LossPositions::kAll);
  EXPECT_EQ(plan.blocks(), kernels::KernelPlan::Blocks::kLibrary);
  EXPECT_THAT(plan.summary(), ::testing::HasSubstr("not for chosen pieces"));
}

}  // namespace
}  // namespace adtrain
