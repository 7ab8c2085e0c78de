#include "model/AlgorithmDistillation.h"

#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using testing::random_compressed;
using testing::random_plain;
using testing::small_model;
using testing::variant;

ModelOptions published(int64_t width, int64_t n_transit, TransformerBlock block) {
  ModelOptions options;
  options.tf_n_embd = width;
  options.n_transit = n_transit;
  options.transformer_block = block;
  return options;
}

std::map<std::string, at::Tensor> by_name(AlgorithmDistillation& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : model.parameters().named()) tensors[name] = tensor.detach();
  return tensors;
}

TEST(AlgorithmDistillation, ParameterCountsAreThePublishedOnes) {
  const auto count = [](const ModelOptions& options) {
    return AlgorithmDistillation::create(options, ModelShape{}, 0)->parameters().count();
  };
  EXPECT_EQ(count(published(32, 80, TransformerBlock::kPreNorm)), 69413);
  EXPECT_EQ(count(published(64, 240, TransformerBlock::kPostNorm)), 222024);
  EXPECT_EQ(count(published(64, 80, TransformerBlock::kPostNorm)), 211784);
  ModelOptions compressed = published(64, 240, TransformerBlock::kAuto);
  compressed.model = ModelKind::kCompressedAd;
  EXPECT_EQ(count(compressed), 222024);
  ModelOptions gpt2 = published(32, 80, TransformerBlock::kAuto);
  gpt2.model = ModelKind::kGpt2;
  EXPECT_EQ(count(gpt2), 61477);
  // By hand: 12 C² + 13 C a block of width C = 32, and 16 numbers of QK norm for vintix's heads of 8. Before
  // them 64 features of 18 coordinate values, 5 actions and the state, and 129 · C + C; behind them 5 · C
  // + 5.
  const int64_t tokens = 64 * (18 + 5) + 128 * 64 + 64 + 130 * 32, blocks = 4 * (12 * 1024 + 13 * 32),
                head = 5 * 33;
  EXPECT_EQ(count(published(32, 80, TransformerBlock::kXland)), tokens + blocks + head);
  EXPECT_EQ(count(published(32, 80, TransformerBlock::kVintix)), tokens + blocks + 4 * 4 * 8 + 2 * 32 + head);
}

TEST(AlgorithmDistillation, NamesAndShapesAreThoseOfThePythonCheckpoints) {
  const auto pre_norm = by_name(*small_model(variant("pre_norm")));
  EXPECT_EQ(pre_norm.size(), 2U + 1U + 2U * 9U + 2U);
  EXPECT_EQ(pre_norm.at("transformer.blocks.1.attn.attn.weight").sizes(), at::IntArrayRef({48, 16}));
  EXPECT_EQ(pre_norm.at("transformer.blocks.0.attn.proj.bias").sizes(), at::IntArrayRef({16}));
  EXPECT_EQ(pre_norm.at("transformer.blocks.0.mlp.swiglu.w3.weight").sizes(), at::IntArrayRef({16, 64}));
  EXPECT_EQ(pre_norm.at("transformer.blocks.0.norm_2.weight").sizes(), at::IntArrayRef({16}));
  EXPECT_EQ(pre_norm.at("embed_query_state.weight").sizes(), at::IntArrayRef({81, 16}));
  EXPECT_EQ(pre_norm.at("embed_context.weight").sizes(), at::IntArrayRef({16, 10}));
  EXPECT_EQ(pre_norm.at("pred_action.weight").sizes(), at::IntArrayRef({5, 16}));

  for (const char* name : {"post_norm", "compressed"}) {
    const auto post_norm = by_name(*small_model(variant(name)));
    EXPECT_EQ(post_norm.size(), 11U + 2U * 12U);
    EXPECT_EQ(post_norm.at("pos_embedding").sizes(),
              at::IntArrayRef({1, variant(name).options.n_transit, 16}));
    EXPECT_EQ(post_norm.at("compress_start_token").sizes(), at::IntArrayRef({1, 1, 16}));
    EXPECT_EQ(post_norm.at("compress_end_token").sizes(), at::IntArrayRef({1, 1, 16}));
    EXPECT_EQ(post_norm.at("token_type_embedding.weight").sizes(), at::IntArrayRef({3, 16}));
    EXPECT_EQ(post_norm.at("pred_token_type.bias").sizes(), at::IntArrayRef({3}));
    EXPECT_EQ(post_norm.at("transformer_encoder.layers.1.self_attn.in_proj_weight").sizes(),
              at::IntArrayRef({48, 16}));
    EXPECT_EQ(post_norm.at("transformer_encoder.layers.0.self_attn.out_proj.bias").sizes(),
              at::IntArrayRef({16}));
    EXPECT_EQ(post_norm.at("transformer_encoder.layers.0.linear1.weight").sizes(), at::IntArrayRef({64, 16}));
    EXPECT_EQ(post_norm.at("transformer_encoder.layers.0.norm2.bias").sizes(), at::IntArrayRef({16}));
  }
}

TEST(AlgorithmDistillation, InitialWeightsFollowTheOriginals) {
  auto model =
      AlgorithmDistillation::create(published(64, 240, TransformerBlock::kPostNorm), ModelShape{}, 3);
  const auto tensors = by_name(*model);
  const auto expect_uniform = [&](const std::string& name, double bound) {
    const at::Tensor& values = tensors.at(name);
    EXPECT_LE(values.abs().max().item<double>(), bound) << name;
    EXPECT_NEAR(values.std().item<double>(), bound / std::sqrt(3.0), 0.06 * bound) << name;
    EXPECT_NEAR(values.mean().item<double>(), 0.0, 0.1 * bound) << name;
  };
  const auto expect_normal = [&](const std::string& name, double deviation) {
    const at::Tensor& values = tensors.at(name);
    EXPECT_NEAR(values.std().item<double>(), deviation, 0.05 * deviation) << name;
    EXPECT_NEAR(values.mean().item<double>(), 0.0, 0.05 * deviation) << name;
    EXPECT_GT(values.abs().max().item<double>(), 2.5 * deviation) << name;
  };
  expect_uniform("embed_context.weight", 1 / std::sqrt(10.0));
  expect_uniform("transformer_encoder.layers.0.self_attn.in_proj_weight", std::sqrt(6.0 / 256));
  expect_uniform("transformer_encoder.layers.0.self_attn.out_proj.weight", 1 / 8.0);
  expect_uniform("transformer_encoder.layers.0.linear2.weight", 1 / 16.0);
  expect_normal("embed_query_state.weight", 1.0);
  expect_normal("pos_embedding", 0.02);
  EXPECT_TRUE(tensors.at("transformer_encoder.layers.0.self_attn.in_proj_bias").eq(0).all().item<bool>());
  EXPECT_TRUE(tensors.at("transformer_encoder.layers.3.norm1.weight").eq(1).all().item<bool>());
  EXPECT_FALSE(at::equal(tensors.at("transformer_encoder.layers.0.linear1.weight"),
                         tensors.at("transformer_encoder.layers.1.linear1.weight")));
}

TEST(AlgorithmDistillation, InitialWeightsOfPresetsFollowTheirProjects) {
  const auto deviation = [](const std::map<std::string, at::Tensor>& tensors, const std::string& name) {
    return tensors.at(name).std().item<double>();
  };
  const auto xland =
      by_name(*AlgorithmDistillation::create(published(128, 80, TransformerBlock::kXland), ModelShape{}, 3));
  for (const std::string name : {"embed_state", "embed_action", "embed_token", "blocks.0.attention.qkv",
                                 "blocks.3.attention.out", "blocks.1.mlp.down", "pred_action"}) {
    EXPECT_NEAR(deviation(xland, name + ".weight"), 0.02, 0.002) << name;
  }
  const auto vintix =
      by_name(*AlgorithmDistillation::create(published(128, 80, TransformerBlock::kVintix), ModelShape{}, 3));
  EXPECT_NEAR(deviation(vintix, "blocks.0.mlp.up.weight"), std::sqrt(2.0 / 640), 0.002);
  EXPECT_NEAR(deviation(vintix, "blocks.0.attention.out.weight"), 1 / (std::sqrt(128.0) * 4), 0.002);
  EXPECT_NEAR(deviation(vintix, "embed_action.weight"), 1.0, 0.1);
  for (const auto* tensors : {&xland, &vintix}) {
    for (const char* name : {"blocks.0.attention.qkv.bias", "blocks.2.mlp.up.bias", "blocks.3.norm_2.bias"}) {
      EXPECT_TRUE(tensors->at(name).eq(0).all().item<bool>()) << name;
    }
  }
}

TEST(AlgorithmDistillation, InitialWeightsDependOnTheSeedAlone) {
  at::manual_seed(1);
  const auto first = small_model(variant("pre_norm"), 11);
  at::manual_seed(2);
  const auto same = small_model(variant("pre_norm"), 11);
  const auto other = small_model(variant("pre_norm"), 12);
  EXPECT_TRUE(at::equal(first->parameters().flat(), same->parameters().flat()));
  EXPECT_FALSE(at::equal(first->parameters().flat(), other->parameters().flat()));
}

TEST(AlgorithmDistillation, TheLossIsTheSumOfSmoothedCrossEntropies) {
  const auto model = small_model(variant("pre_norm"));
  const Batch batch = random_plain(6, 9);
  const at::Tensor logits = model->predict(batch).actions;
  const auto loss = model->loss(batch, LossPositions::kLast, false);

  double expected = 0;
  int64_t right = 0;
  for (int64_t row = 0; row < 6; ++row) {
    const at::Tensor log_p = at::log_softmax(logits[row].to(at::kDouble), -1);
    const int64_t target = batch.actions[row][8].item<int64_t>();
    expected -= 0.9 * log_p[target].item<double>() + 0.1 * log_p.mean().item<double>();
    right += logits[row].argmax().item<int64_t>() == target ? 1 : 0;
  }
  EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-5 * expected);
  EXPECT_EQ(loss.correct.item<int64_t>(), right);
  EXPECT_EQ(loss.targets, 6);
  EXPECT_EQ(model->loss(batch, LossPositions::kAll, false).targets, 6 * 9);
}

TEST(AlgorithmDistillation, ARegionsEndIsJudgedByTheTokenTypeAlone) {
  const auto model = small_model(variant("compressed"));
  const Batch batch = random_compressed({0, 4, 4, 0}, {4, 4, 4, 4}, 4);
  const at::Tensor log_p = at::log_softmax(model->predict(batch).token_types, -1).select(1, kEndCompress);
  const auto loss = model->loss(batch, LossPositions::kLast, false);
  EXPECT_NEAR(loss.sum.item<double>(), -model->options().token_type_weight * log_p.sum().item<double>(),
              1e-5);
  EXPECT_EQ(loss.targets, 4);
}

TEST(AlgorithmDistillation, NothingIsCountedTwiceOrLostOverMicroBatches) {
  for (const auto& each : testing::plain_variants()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    const Batch batch = random_plain(4, 9);
    for (const auto positions : {LossPositions::kLast, LossPositions::kAll}) {
      const auto whole = model->loss(batch, positions, false);
      const auto first = model->loss(testing::part(batch, 0, 0, 1), positions, false);
      const auto rest = model->loss(testing::part(batch, 0, 1, 3), positions, false);
      EXPECT_NEAR(whole.sum.item<double>(), (first.sum + rest.sum).item<double>(), 1e-4);
      EXPECT_EQ(whole.correct.item<int64_t>(), (first.correct + rest.correct).item<int64_t>());
      EXPECT_EQ(whole.targets, first.targets + rest.targets);
    }
  }
}

TEST(AlgorithmDistillation, NaNPassesThroughTheLoss) {
  const auto model = small_model(variant("pre_norm"));
  Batch batch = random_plain(2, 9);
  batch.rewards[0][3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(model->loss(batch, LossPositions::kAll, true).sum.isnan().item<bool>());
}

TEST(AlgorithmDistillation, DropoutActsInTrainingOnlyAndFollowsTorchsGenerator) {
  for (const auto& each : testing::plain_variants()) {
    const std::string& name = each.name;
    SCOPED_TRACE(name);
    for (const bool in_attention : {false, true}) {
      auto chosen = variant(name);
      chosen.options.tf_dropout = in_attention ? 0.0 : 0.4;
      chosen.options.tf_attn_dropout = in_attention ? 0.4 : 0.0;
      const auto model = small_model(chosen);
      const Batch batch = random_plain(3, 9);
      const auto sum = [&](bool training) {
        return model->loss(batch, LossPositions::kAll, training).sum.item<float>();
      };
      at::manual_seed(5);
      const float first = sum(true);
      const float second = sum(true);
      at::manual_seed(5);
      EXPECT_EQ(first, sum(true));
      EXPECT_NE(first, second);
      EXPECT_EQ(sum(false), sum(false));
    }
  }
}

TEST(AlgorithmDistillation, DropoutLeavesTheExpectedAttentionUnchanged) {
  auto chosen = variant("post_norm");
  chosen.options.tf_n_layer = 1;
  chosen.options.tf_dropout = 0;
  chosen.options.tf_attn_dropout = 0.3;
  const auto model = small_model(chosen);
  // Many copies of one row: each draws its own mask.
  const Batch row = random_plain(1, 9);
  Batch copies = row;
  constexpr int64_t kCopies = 3000;
  copies.states = row.states.expand({kCopies, -1, -1});
  copies.actions = row.actions.expand({kCopies, -1});
  copies.rewards = row.rewards.expand({kCopies, -1});
  copies.next_states = row.next_states.expand({kCopies, -1, -1});
  const at::NoGradGuard no_grad;
  const at::Tensor mean = model->forward(copies, LossPositions::kAll, true).actions.mean(0);
  const at::Tensor plain = model->forward(row, LossPositions::kAll, false).actions.squeeze(0);
  EXPECT_LT(testing::relative_error(mean, plain), 0.1);
}

TEST(AlgorithmDistillation, GradientsAreTheSlopeOfTheLoss) {
  for (const std::string name :
       {"pre_norm", "post_norm", "gpt2", "compressed", "vintix", "xland_transition"}) {
    SCOPED_TRACE(name);
    const auto model = small_model(variant(name));
    const Batch batch =
        name == "compressed" ? random_compressed({0, 4, 4}, {4, 4, 4}, 4) : random_plain(3, 9);
    for (const auto positions : {LossPositions::kLast, LossPositions::kAll}) {
      const at::Tensor gradient = testing::flat_gradient(*model, model->loss(batch, positions, false).sum);
      at::Tensor flat = model->parameters().flat();
      const double norm = gradient.norm().item<double>();
      const double step = 0.01 / norm;  // small against the weights, large against fp32
      const auto loss_at = [&](double offset) {
        const at::NoGradGuard no_grad;
        flat.add_(gradient, offset);
        const double value = model->loss(batch, positions, false).sum.item<double>();
        flat.add_(gradient, -offset);
        return value;
      };
      const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
      EXPECT_NEAR(slope / (norm * norm), 1.0, 0.03);
    }
  }
}

}  // namespace
}  // namespace adtrain
