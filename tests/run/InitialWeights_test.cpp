#include "run/InitialWeights.h"

#include <functional>
#include <string>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Checksum.h"
#include "base/Error.h"
#include "base/File.h"
#include "base/SymbolicLink.h"
#include "checkpoint/CheckpointStore.h"
#include "checkpoint/Safetensors.h"
#include "model/AlgorithmDistillation.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RunConfig small_config() {
  RunConfig config;
  config.model.tf_n_embd = 16;
  config.model.tf_n_layer = 2;
  config.model.tf_n_head = 2;
  config.model.n_transit = 8;
  return config;
}

/// A run with checkpoints of two steps, whose weights differ.
class InitialWeightsOf : public ::testing::Test {
 protected:
  InitialWeightsOf() { write_run("source", small_config()); }

  std::string path(const std::string& relative) const { return (folder_.path() / relative).string(); }

  void write_run(const std::string& name, const RunConfig& config) const {
    std::filesystem::create_directories(folder_.path() / name);
    CheckpointStore store(folder_.path() / name / "checkpoints", 3);
    for (const int64_t step : {10, 20}) {
      const auto model =
          AlgorithmDistillation::create(config.model, config.model_shape(), static_cast<uint64_t>(step));
      Snapshot snapshot;
      snapshot.step = step;
      snapshot.model = model->parameters().named();
      snapshot.state = {{"configuration", config.resolved_yaml()}};
      store.save(snapshot);
    }
  }
  static at::Tensor weights_of_seed(const RunConfig& config, uint64_t seed) {
    const auto model = AlgorithmDistillation::create(config.model, config.model_shape(), seed);
    return model->parameters().flat().clone();
  }
  /// What the network of `config` begins with.
  static at::Tensor begun_with(const RunConfig& config) {
    const auto model = AlgorithmDistillation::create(config.model, config.model_shape(), 1);
    const InitialWeights weights(config, model->parameters());
    weights.put_into(model->parameters());
    return model->parameters().flat().clone();
  }
  RunConfig config_from(const std::string& relative) const {
    RunConfig config = small_config();
    config.training.init_from = path(relative);
    return config;
  }
  static InitialWeights weights(const RunConfig& config) {
    const auto model = AlgorithmDistillation::without_values(config.model, config.model_shape());
    return {config, model->parameters()};
  }
  template <class Expected>
  static std::string error_of(const RunConfig& config) {
    try {
      weights(config);
    } catch (const Expected& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
};

TEST_F(InitialWeightsOf, ARunACheckpointOrAFileAreRead) {
  write_file_atomically(path("alone.safetensors"),
                        read_file(path("source/checkpoints/step-10/model.safetensors")));
  const at::Tensor newest = weights_of_seed(small_config(), 20), older = weights_of_seed(small_config(), 10);
  EXPECT_TRUE(at::equal(begun_with(config_from("source")), newest));
  EXPECT_TRUE(at::equal(begun_with(config_from("source/")), newest));
  EXPECT_TRUE(at::equal(begun_with(config_from("source/checkpoints/latest")), newest));
  EXPECT_TRUE(at::equal(begun_with(config_from("source/checkpoints/step-10")), older));
  EXPECT_TRUE(at::equal(begun_with(config_from("source/checkpoints/step-10/model.safetensors")), older));
  EXPECT_TRUE(at::equal(begun_with(config_from("alone.safetensors")), older));

  const nlohmann::ordered_json record = weights(config_from("source/checkpoints/latest")).record();
  EXPECT_EQ(record["path"], path("source/checkpoints/latest"));
  EXPECT_EQ(record["checkpoint"], path("source/checkpoints/step-20"));
  EXPECT_EQ(record["step"], 20);
  EXPECT_EQ(record["crc32"], checksum_text(read_file(path("source/checkpoints/step-20/model.safetensors"))));
  EXPECT_EQ(record["new"].size() + record["left_out"].size(), 0U);
  const RunConfig config = config_from("alone.safetensors");
  EXPECT_EQ(weights(config).record()["step"], 10) << "as the file's metadata say";
  EXPECT_THAT(weights(config).report(), ElementsAre(AllOf(HasSubstr("alone.safetensors (step 10), CRC-32 "),
                                                          HasSubstr("23 of 23 tensors")),
                                                    HasSubstr("that it has 2 heads is taken on trust")));
}

TEST_F(InitialWeightsOf, WhatIsNewAndWhatIsLeftOutIsSaid) {
  RunConfig config = config_from("source");
  config.environment.num_actions = 7;
  EXPECT_THAT(weights(config).report(),
              ElementsAre(HasSubstr("20 of 23 tensors are taken"),
                          "  new:      embed_context.weight [16, 12], found [16, 10]",
                          "  new:      pred_action.weight [7, 16], found [5, 16]",
                          "  new:      pred_action.bias [7], found [5]"));
  EXPECT_THAT(weights(config).record()["new"],
              ElementsAre("embed_context.weight", "pred_action.weight", "pred_action.bias"));
  // Rotary positions have no table: a longer window is no other network.
  config = config_from("source");
  config.model.n_transit = 40;
  EXPECT_THAT(weights(config).report(), ElementsAre(HasSubstr("23 of 23 tensors")));
  // Blocks of the same pieces whatever preset they come from; tokens may hold something else.
  RunConfig composed = small_config();
  composed.model.transformer_block = TransformerBlock::kXland;
  composed.model.decide();
  write_run("composed", composed);
  composed.training.init_from = path("composed");
  composed.environment.env = "own";
  composed.environment.observation_space = Space::box({3}, {-1}, {1}).to_json();
  composed.environment.action_space = Space::discrete(4).to_json();
  composed.model.token_layout = TokenLayout::kAuto;
  composed.model = composed.model.of_own_tasks();
  EXPECT_THAT(weights(composed).report(), AllOf(Contains(HasSubstr("new:      observation.linear.weight")),
                                                Contains(HasSubstr("left out: embed_coordinate.weight"))));
}

TEST_F(InitialWeightsOf, OtherNetworksAreRefusedWithWhatWasFoundAndExpected) {
  const auto refused = [&](const std::function<void(ModelOptions&)>& change) {
    RunConfig config = config_from("source");
    change(config.model);
    return error_of<ConfigError>(config);
  };
  EXPECT_THAT(refused([](ModelOptions& model) { model.tf_n_head = 4; }),
              AllOf(HasSubstr("init_from: the weights of "), HasSubstr("tf_n_head: 2 in the weights, 4 here"),
                    HasSubstr("2 layers, 2 heads"), Not(HasSubstr("found shape"))));
  EXPECT_THAT(
      refused([](ModelOptions& model) { model.tf_n_embd = 32; }),
      AllOf(HasSubstr("tf_n_embd: 16 in the weights, 32 here"),
            HasSubstr("blocks.0.norm_1.weight: found shape [16], expected [32]"), HasSubstr(" more\n")));
  EXPECT_THAT(refused([](ModelOptions& model) { model.tf_n_layer = 1; }),
              AllOf(HasSubstr("tf_n_layer: 2 in the weights, 1 here"), HasSubstr("expected no such tensor")));
  EXPECT_THAT(refused([](ModelOptions& model) { model.transformer_block = TransformerBlock::kPostNorm; }),
              HasSubstr("transformer_block: pre_norm in the weights, post_norm here"));
  EXPECT_THAT(refused([](ModelOptions& model) {
                model.transformer_block = TransformerBlock::kXland;
                model.decide();
              }),
              HasSubstr("transformer blocks: fixed ones in the weights, composed of pieces here"));
  RunConfig learned = small_config();
  learned.model.transformer_block = TransformerBlock::kPostNorm;
  write_run("learned", learned);
  learned.model.n_transit = 12;
  learned.training.init_from = path("learned");
  EXPECT_THAT(error_of<ConfigError>(learned),
              HasSubstr("pos_embedding: found shape [1, 8, 16], expected [1, 12, 16]"));
}

TEST_F(InitialWeightsOf, WhatIsNoCheckpointIsRefusedWithWhatWouldBe) {
  EXPECT_THAT(error_of<CheckpointError>(config_from("sorce")),
              AllOf(HasSubstr("does not exist"), HasSubstr("did you mean"), HasSubstr("/source?")));
  write_file_atomically(path("weights.pt"), "PK");
  EXPECT_THAT(error_of<CheckpointError>(config_from("weights.pt")),
              AllOf(HasSubstr("adtrain checkpoint import "), HasSubstr("then init_from: runs/imported")));
  write_file_atomically(path("weights.bin"), "no safetensors");
  EXPECT_THAT(error_of<CheckpointError>(config_from("weights.bin")),
              AllOf(HasSubstr("weights.bin"), HasSubstr("or a .safetensors file")));
  write_file_atomically(path("empty/config.yaml"), "");
  EXPECT_THAT(error_of<CheckpointError>(config_from("empty")), HasSubstr("holds no checkpoint"));
  std::string damaged = read_file(path("source/checkpoints/step-20/model.safetensors"));
  damaged.back() ^= 1;
  write_file_atomically(path("source/checkpoints/step-20/model.safetensors"), damaged);
  EXPECT_THAT(error_of<CheckpointError>(config_from("source/checkpoints/step-20")),
              HasSubstr("model.safetensors"));
  EXPECT_THAT(weights(config_from("source")).report(),
              ElementsAre(HasSubstr("(step 10)"), HasSubstr("passed over a checkpoint: ")));
}

}  // namespace
}  // namespace adtrain
