#include "model/QuantisedNetwork.h"

#include <functional>
#include <random>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/Error.h"
#include "kernels/quantised/Dequantise.h"
#include "model/AnySpaceBatch.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using namespace adtrain::testing;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<WeightQuantisation> every_kind() {
  return {{.code = QuantisedCode::nf4},
          {.code = QuantisedCode::nf4, .double_quantisation = true},
          {.code = QuantisedCode::fp4},
          {.code = QuantisedCode::int8}};
}

/// A network and a batch for it.
struct Case {
  std::string name;
  std::function<std::unique_ptr<AlgorithmDistillation>()> model;
  Batch batch;
};

std::vector<Case> every_case() {
  std::vector<Case> cases;
  for (const Variant& variant : plain_variants())
    cases.push_back({variant.name, [variant] { return small_model(variant); },
                     random_plain(3, variant.options.n_transit)});
  const Variant compressed = variant("compressed");
  cases.push_back({"compressed", [compressed] { return small_model(compressed); },
                   random_compressed({4, 0, 3}, {2, 1, 4}, compressed.options.compress_interval)});
  for (const SpaceVariant& variant : space_variants())
    cases.push_back({variant.name, [variant] { return small_model(variant); },
                     random_rows(variant, 3, variant.options.n_transit)});
  return cases;
}

/// Gives the network, in the place of its weights of these names, those that quantised ones stand for.
void put_in_what_codes_stand_for(AlgorithmDistillation& model, const std::set<std::string>& names,
                                 const WeightQuantisation& how) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, weights] : model.parameters().named()) {
    if (names.contains(name))
      at::Tensor(weights).copy_(kernels::dequantised(how.quantised(weights), at::kFloat));
  }
  model.parameters().refresh();
}

TEST(QuantisedNetwork, PredictsAsTheWeightsThatItsCodesStandFor) {
  for (const Case& one : every_case()) {
    for (const WeightQuantisation& how : every_kind()) {
      SCOPED_TRACE(fmt::format("{} {}", one.name, how.name()));
      const auto expected = one.model(), quantised = one.model(), plain = one.model();
      const auto names = quantised_names(quantised->parameters(), "", "");
      put_in_what_codes_stand_for(*expected, names, how);
      quantised->quantise(names, how, at::kCPU, at::kFloat);
      const at::Tensor found = quantised->predict(one.batch).actions;
      // A weight that anything reads past its codes is NaN.
      EXPECT_LT(relative_error(found, expected->predict(one.batch).actions), 1e-5);
      EXPECT_GT(relative_error(found, plain->predict(one.batch).actions), 1e-5);
      EXPECT_FALSE(quantised->plan(LossPositions::kLast).whole_blocks());
    }
  }
}

TEST(QuantisedNetwork, RollsAsTheWeightsThatItsCodesStandFor) {
  const WeightQuantisation how;
  for (const SpaceVariant& variant : space_variants()) {
    SCOPED_TRACE(variant.name);
    if (variant.options.block_pieces().positions == PositionKind::kLearned) continue;
    const auto expected = small_model(variant), quantised = small_model(variant);
    const auto names = quantised_names(quantised->parameters(), "", "");
    put_in_what_codes_stand_for(*expected, names, how);
    quantised->quantise(names, how, at::kCPU, at::kFloat);
    const Batch batch = random_rows(variant, 2, variant.options.n_transit);
    const auto rolling = quantised->rolling(), rolling_expected = expected->rolling();
    for (int64_t step = 0; step < 4; ++step) {
      const Batch of_step = window(batch, step, 1);
      EXPECT_LT(relative_error(rolling(of_step).actions, rolling_expected(of_step).actions), 1e-5);
    }
  }
}

TEST(QuantisedNetwork, ComputesInTheTypesThatAreAskedFor) {
  const SpaceVariant variant = space_variants().front();
  const Batch batch = random_rows(variant, 16, variant.options.n_transit);
  const auto predicted = [&](const WeightQuantisation& how, at::ScalarType type) {
    const auto model = small_model(variant);
    model->quantise(quantised_names(model->parameters(), "", ""), how, at::kCPU, type);
    EXPECT_EQ(model->parameters().compute_type(), type);
    return model->predict(batch).actions;
  };
  const at::Tensor exact = predicted({}, at::kFloat);
  const at::Tensor in_bf16 = predicted({}, at::kBFloat16);
  const double by_bf16 = relative_error(in_bf16, exact);
  const double products_by_bf16 =
      relative_error(predicted({.compute_type = at::kBFloat16}, at::kFloat), exact);
  EXPECT_GT(by_bf16, 1e-4);
  EXPECT_LT(by_bf16, 0.1);
  EXPECT_GT(products_by_bf16, 1e-4);
  EXPECT_LT(products_by_bf16, 0.1);
  // Single actions may be equal, and the largest error may, as all are rounded to bf16.
  EXPECT_FALSE(predicted({.compute_type = at::kFloat}, at::kBFloat16).equal(in_bf16));
  const WeightQuantisation int8 = {.code = QuantisedCode::int8};
  const WeightQuantisation outliers = {.code = QuantisedCode::int8, .outlier_threshold = 6};
  const double by_outliers = relative_error(predicted(outliers, at::kFloat), predicted(int8, at::kFloat));
  EXPECT_GT(by_outliers, 1e-5);
  EXPECT_LT(by_outliers, 0.1);
}

TEST(QuantisedNetwork, TakesTheBytesThatArithmeticSays) {
  for (const Case& one : every_case()) {
    for (const WeightQuantisation& how : every_kind()) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        SCOPED_TRACE(fmt::format("{} {}", one.name, how.name()));
        const auto model = one.model();
        const auto names = quantised_names(model->parameters(), "", "");
        const QuantisedSize size = QuantisedSize::of(model->parameters(), names, how, type);
        model->quantise(names, how, at::kCPU, type);
        const auto kept = model->parameters().kept();
        ASSERT_EQ(kept.size(), size.parameters.size());
        int64_t total = 0;
        for (size_t i = 0; i < kept.size(); ++i) {
          int64_t bytes = 0;
          for (const at::Tensor& tensor : kept[i]) bytes += static_cast<int64_t>(tensor.nbytes());
          EXPECT_EQ(bytes, size.parameters[i]);
          total += bytes;
        }
        EXPECT_EQ(total, size.total);
        // The flat tensor has gaps between parameters.
        EXPECT_GE(model->parameters().bytes(), total);
        EXPECT_LE(model->parameters().bytes(), total + static_cast<int64_t>(kept.size()) * 64 * 4);
      }
    }
  }
}

TEST(QuantisedNetwork, OfAUsefulSizeTakesAsManyBitsAWeightAsTheFormatsSay) {
  SpaceVariant variant = space_variants().front();
  variant.options.tf_n_embd = 512;
  const auto model = AlgorithmDistillation::without_values(variant.options, variant.shape());
  const auto names = quantised_names(model->parameters(), "", "");
  EXPECT_THAT(names, Contains("blocks.0.attention.qkv.weight"));
  EXPECT_THAT(names, Contains("embed_token.weight"));
  EXPECT_THAT(names, Not(Contains(HasSubstr("pred_action"))));
  int64_t weights = 0;
  for (const auto& [name, leaf] : model->parameters().named_leaves())
    if (names.contains(name)) weights += leaf.numel();
  const auto bits = [&](const WeightQuantisation& how) {
    const QuantisedSize size = QuantisedSize::of(model->parameters(), names, how, at::kBFloat16);
    const int64_t saved = size.unquantised - size.total;
    return 16 - 8 * static_cast<double>(saved) / static_cast<double>(weights);
  };
  EXPECT_NEAR(bits({.code = QuantisedCode::nf4}), 4.5, 0.01);
  EXPECT_NEAR(bits({.code = QuantisedCode::nf4, .double_quantisation = true}), 4.127, 0.03);
  EXPECT_NEAR(bits({.code = QuantisedCode::int8}), 8.05, 0.05);
}

TEST(QuantisedNetwork, LeavesOutWhatIsToBeSkippedAndSaysWhatIsNoLayer) {
  const auto model = small_model(variant("xland"));
  const ParameterBuffer& parameters = model->parameters();
  const auto all = quantised_names(parameters, "", "");
  const auto some = quantised_names(parameters, "blocks.0, *.down", "run.yaml:3: llm_int8_skip_modules");
  EXPECT_THAT(all, Contains("blocks.0.mlp.up.weight"));
  EXPECT_THAT(some, Not(Contains("blocks.0.mlp.up.weight")));
  EXPECT_THAT(some, Not(Contains("blocks.1.mlp.down.weight")));
  EXPECT_THAT(some, Contains("blocks.1.mlp.up.weight"));
  try {
    quantised_names(parameters, "blocks.0.mlp.dawn", "run.yaml:3: llm_int8_skip_modules");
    FAIL() << "there is no such layer";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("run.yaml:3: llm_int8_skip_modules: found 'blocks.0.mlp.dawn'"));
    EXPECT_THAT(error.what(), HasSubstr("did you mean blocks.0.mlp.down?"));
  }
  EXPECT_EQ(quantised_names(parameters, "pred_action, blocks.0.norm_1", ""), all)
      << "neither is quantised anyway";
  try {
    quantised_names(parameters, "embed_*, blocks", "run.yaml:3: llm_int8_skip_modules");
    FAIL() << "nothing is left";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("leaves no linear layer to quantise"));
  }
  const QuantisedSize size = QuantisedSize::of(parameters, all, {.double_quantisation = true}, at::kBFloat16);
  EXPECT_THAT(size.without_gain, Contains("blocks.0.attention.out.weight"))
      << "16 × 16 weights, and two maps";
}

}  // namespace
}  // namespace adtrain
