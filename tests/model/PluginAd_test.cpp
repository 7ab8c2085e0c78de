#include "model/PluginAd.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "adtrain/network.h"
#include "base/Error.h"
#include "model/PluginNetworks.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The sum of the rewards before, times one weight an action.
class RewardSum : public Network {
 public:
  explicit RewardSum(const NetworkSettings& settings)
      : weight_(register_parameter("weight", at::randn({settings.num_actions}))),
        one_(register_buffer("one", at::ones({1}))) {}

  at::Tensor forward(const NetworkBatch& batch) override {
    const at::Tensor sums = at::constant_pad_nd(batch.rewards, {1, 0}).cumsum(1).unsqueeze(-1);
    const at::Tensor logits = sums * weight_ * one_ + (is_training() ? 1 : 0);
    return batch.every_state ? logits : logits.slice(1, -1);
  }

 private:
  at::Tensor weight_, one_;
};

/// All that a network may do wrong.
class Wrong : public Network {
 public:
  explicit Wrong(const std::string& how) {
    if (how == "double") register_parameter("weight", at::ones({1}, at::kDouble));
    if (how == "shape") register_parameter("weight", at::ones({1}));
  }
  at::Tensor forward(const NetworkBatch& batch) override { return parameters()[0] * batch.rewards; }
};

ModelOptions options_for(const std::string& name) {
  static const bool added = [] {
    PluginNetworks::add(
        {"rewards", "libmine.so", [](const auto& s) { return std::make_shared<RewardSum>(s); }});
    for (const char* how : {"double", "shape", "none"})
      PluginNetworks::add({how, "libmine.so", [how](const auto&) { return std::make_shared<Wrong>(how); }});
    PluginNetworks::add({"null", "libmine.so", [](const auto&) { return nullptr; }});
    return true;
  }();
  EXPECT_TRUE(added);
  ModelOptions options;
  const std::vector<std::string> names = model_names();
  const auto found = std::find(names.begin(), names.end(), name);
  options.model = static_cast<ModelKind>(found - names.begin());
  return options;
}

TEST(PluginAd, ItsNamesFollowThoseOfAdtrain) {
  options_for("rewards");
  EXPECT_THAT(model_names(),
              ElementsAre("AD", "CompressedAD", "GPT2", "rewards", "double", "shape", "none", "null"));
  EXPECT_TRUE(options_for("double").is_plugin());
  EXPECT_FALSE(ModelOptions().is_plugin());
  ModelOptions compressed = options_for("rewards");
  compressed.use_compressed_context = true;
  Findings findings;
  compressed.check(findings);
  ASSERT_EQ(findings.all().size(), 1);
  EXPECT_EQ(findings.all()[0].key, "use_compressed_context");

  ModelOptions again = options_for("rewards");
  again.recompute = Recompute::kMlp;
  Findings of_blocks;
  again.check(of_blocks);
  ASSERT_EQ(of_blocks.all().size(), 1);
  EXPECT_EQ(of_blocks.all()[0].key, "recompute");
  EXPECT_THAT(of_blocks.all()[0].message, HasSubstr("found mlp with a plug-in's network"));
}

TEST(PluginAd, ParametersAreTakenInAndForwardReadsThem) {
  const auto model = AlgorithmDistillation::create(options_for("rewards"), ModelShape{}, 7);
  ASSERT_EQ(model->parameters().named().size(), 1);
  EXPECT_EQ(model->parameters().named()[0].name, "weight");
  EXPECT_EQ(model->plan(LossPositions::kLast).blocks(), kernels::KernelPlan::Blocks::kLibrary);
  const at::Tensor weight = model->parameters().named()[0].tensor.clone();
  const auto again = AlgorithmDistillation::create(options_for("rewards"), ModelShape{}, 7);
  EXPECT_TRUE(at::equal(weight, again->parameters().named()[0].tensor)) << "a function of the seed";

  const Batch batch = testing::random_plain(3, 5);
  batch.rewards[0][0].fill_(1);  // without rewards there is no gradient
  for (const LossPositions positions : {LossPositions::kAll, LossPositions::kLast}) {
    const at::Tensor logits = model->forward(batch, positions, false).actions;
    const at::Tensor before = batch.rewards.narrow(1, 0, 4).sum(1);
    EXPECT_EQ(logits.size(1), positions == LossPositions::kAll ? 5 : 1);
    EXPECT_TRUE(at::allclose(logits.select(1, -1), before.unsqueeze(-1) * weight));
  }
  const Batch first = testing::prefix(batch, 1);
  EXPECT_EQ(model->predict(first).actions.abs().max().item<float>(), 0) << "nothing happened before";
  EXPECT_EQ(model->forward(first, LossPositions::kLast, true).actions.min().item<float>(), 1) << "it trains";

  const at::Tensor gradient =
      testing::flat_gradient(*model, model->loss(batch, LossPositions::kAll, false).sum);
  EXPECT_GT(gradient.abs().max().item<float>(), 0);
  at::Tensor(model->parameters().flat()).zero_();
  EXPECT_EQ(model->predict(batch).actions.abs().max().item<float>(), 0);
}

TEST(PluginAd, SaysWhatANetworkDoesWrong) {
  const auto error_of = [](const std::string& name) -> std::string {
    try {
      const auto model = AlgorithmDistillation::create(options_for(name), ModelShape{}, 7);
      model->predict(testing::random_plain(3, 5));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of("double"),
              HasSubstr("The network 'double' of libmine.so has the parameter weight of Double"));
  EXPECT_THAT(error_of("shape"),
              HasSubstr("returned Float (3, 4); expected logits of a floating-point type and "
                        "shape (3, 1, 5)"));
  EXPECT_THAT(error_of("none"), HasSubstr("has no parameters"));
  EXPECT_THAT(error_of("null"), HasSubstr("was not made"));
}

}  // namespace
}  // namespace adtrain
