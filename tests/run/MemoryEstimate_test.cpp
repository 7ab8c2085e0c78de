#include "run/MemoryEstimate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "collectives/SingleCommunicator.h"
#include "model/AlgorithmDistillation.h"
#include "model/FrozenParameters.h"
#include "parallel/GradientReducer.h"
#include "training/Optimizer.h"

namespace adtrain {
namespace {

constexpr int64_t kGigabyte = 1'000'000'000;

MemoryEstimate estimate_of(const RunConfig& config, int64_t world_size = 1) {
  return {config, kernels::DeviceTraits::hopper(), world_size};
}

RunConfig config_of(TransformerBlock block, int64_t width) {
  RunConfig config;
  config.model.transformer_block = block;
  config.model.tf_n_embd = width;
  config.model.tf_n_head = width / 16;
  config.training.mixed_precision = Precision::kBFloat16;
  config.training.eval_interval = 0;
  return config;
}

std::vector<RunConfig> configs() {
  std::vector<RunConfig> all = {config_of(TransformerBlock::kPreNorm, 64),
                                config_of(TransformerBlock::kPostNorm, 64),
                                config_of(TransformerBlock::kPostNorm, 96)};
  all.push_back(config_of(TransformerBlock::kAuto, 48));
  all.back().model.model = ModelKind::kGpt2;
  all.push_back(config_of(TransformerBlock::kAuto, 64));
  all.back().model.model = ModelKind::kCompressedAd;
  all.push_back(config_of(TransformerBlock::kXland, 64));
  all.push_back(config_of(TransformerBlock::kVintix, 64));
  all.back().model.token_layout = TokenLayout::kTransition;
  all.back().model.pieces.mlp = MlpKind::kSwiglu;
  for (const auto& [block, space] :
       {std::pair{TransformerBlock::kXland, Space::multi_discrete({5, 5, 2}, {12})},
        std::pair{TransformerBlock::kVintix, Space::box({39}, {-1}, {1})}}) {
    all.push_back(config_of(block, 64));
    all.back().environment.env = "own";
    all.back().environment.observation_space = space.to_json();
    all.back().environment.action_space = Space::box({4}, {-1}, {1}).to_json();
    all.back().model = all.back().model.of_own_tasks();
  }
  all.push_back(config_of(TransformerBlock::kPreNorm, 32));
  all.back().training.mixed_precision = Precision::kFloat32;
  return all;
}

/// The names of all parameters but those of the head.
std::string all_but_head(const ParameterBuffer& parameters) {
  std::string patterns;
  for (const auto& [name, tensor] : parameters.named()) {
    if (!name.starts_with("pred_action")) patterns += (patterns.empty() ? "" : ",") + name;
  }
  return patterns;
}

TEST(MemoryEstimate, ParametersGradientsAndMomentsAreThoseOfTheRealNetwork) {
  for (const RunConfig& config : configs()) {
    const auto model = AlgorithmDistillation::create(config.model, config.model_shape(), 3);
    ParameterBuffer& parameters = model->parameters();
    const int64_t count = parameters.count();
    parameters.to(at::kCPU, config.training.compute_type(at::kCUDA));
    const Optimizer optimizer(parameters.flat(), config.training);
    const MemoryEstimate estimate = estimate_of(config);
    EXPECT_EQ(estimate.parameter_count(), count);
    EXPECT_EQ(estimate.split(1).parameters, parameters.bytes());
    EXPECT_EQ(estimate.split(1).gradients, static_cast<int64_t>(parameters.flat().nbytes()));
    EXPECT_EQ(estimate.split(1).moments, optimizer.bytes());
  }
}

/// Of frozen parameters there are neither gradients nor moments; blocks without a backward pass keep nothing.
TEST(MemoryEstimate, WhatIsFrozenTakesItsWeightsAlone) {
  for (RunConfig config : configs()) {
    const MemorySplit whole = estimate_of(config).split(4096);
    const auto model = AlgorithmDistillation::create(config.model, config.model_shape(), 3);
    ParameterBuffer& parameters = model->parameters();
    config.training.freeze = "*[sh].0";  // the first block: blocks.0, layers.0 or h.0
    freeze(parameters, *config.training.freeze, "freeze");
    SingleCommunicator alone(at::kCPU);
    const GradientReducer reducer(parameters.trained_leaves(), alone, {});
    const Optimizer optimizer(parameters.trained_of(parameters.flat()), config.training);
    const MemoryEstimate partly = estimate_of(config);
    EXPECT_EQ(partly.trained_count(), parameters.trained_count());
    EXPECT_EQ(partly.parameter_count(), parameters.count());
    EXPECT_EQ(partly.split(1).parameters, whole.parameters);
    EXPECT_EQ(partly.split(1).gradients, reducer.bytes());
    EXPECT_EQ(partly.split(1).moments, optimizer.bytes());
    EXPECT_GE(partly.split(4096).activations, whole.activations) << "embeddings train";

    config.training.freeze = all_but_head(parameters);
    const MemorySplit head = estimate_of(config).split(4096);
    EXPECT_LT(head.activations, whole.activations / 2) << "four blocks, of which one at a time is in memory";
  }
}

/// The last rank's shard is the largest; a bucket is smaller here than the model.
TEST(MemoryEstimate, ShardedMomentsAreThoseOfTheRealOptimizer) {
  for (RunConfig config : configs()) {
    const int64_t whole = estimate_of(config, 4).split(1).moments;
    config.distributed.shard_optimizer = true;
    config.distributed.first_bucket_megabytes = 0.01;
    config.distributed.bucket_megabytes = 0.1;
    EXPECT_EQ(estimate_of(config).split(1).moments, whole) << "of one rank there is nothing to shard";
    const auto model = AlgorithmDistillation::create(config.model, config.model_shape(), 3);
    SingleCommunicator last(at::kCPU, 3, 4);
    GradientReducer reducer(model->parameters().leaves(), last, config.distributed.reducer());
    const Optimizer optimizer(model->parameters().flat(), config.training, reducer.shards());
    const MemorySplit split = estimate_of(config, 4).split(1);
    EXPECT_EQ(split.moments, optimizer.bytes());
    EXPECT_LT(split.moments, whole / 3);
    EXPECT_GE(split.moments, whole / 4);
  }
}

TEST(MemoryEstimate, ActivationsAreThoseOfTheSpacesEncoder) {
  RunConfig small = config_of(TransformerBlock::kPreNorm, 64), large = small;
  for (RunConfig* config : {&small, &large}) {
    config->environment.env = "own";
    config->environment.action_space = Space::discrete(4).to_json();
    config->model = config->model.of_own_tasks();
  }
  small.environment.observation_space = Space::multi_discrete({5, 5}, {9}).to_json();
  large.environment.observation_space = Space::multi_discrete({5, 5, 4}, {9}).to_json();
  constexpr int64_t kBatch = 4096, kMoreEmbeddings = 75 * 64, kBfloat16 = 2, kInt64 = 8;
  EXPECT_EQ(estimate_of(large).split(kBatch).activations - estimate_of(small).split(kBatch).activations,
            kBatch * large.model.n_transit * (kMoreEmbeddings * kBfloat16 + 75 * kInt64));
}

TEST(MemoryEstimate, OnlyActivationsGrowWithTheBatch) {
  for (const RunConfig& config : configs()) {
    const MemoryEstimate estimate = estimate_of(config);
    const MemorySplit one = estimate.split(4096), two = estimate.split(8192);
    EXPECT_GT(one.activations, 0);
    EXPECT_GT(two.activations, 1.5 * static_cast<double>(one.activations));
    EXPECT_LE(two.activations, 2 * one.activations);
    EXPECT_EQ(two.total() - two.activations, one.total() - one.activations);
  }
}

TEST(MemoryEstimate, TheLargestBatchFitsAndTheNextDoesNot) {
  for (const RunConfig& config : configs()) {
    const MemoryEstimate estimate = estimate_of(config);
    for (const int64_t bytes : {2 * kGigabyte, 40 * kGigabyte}) {
      const int64_t largest = estimate.largest_batch(bytes);
      ASSERT_GE(largest, 1);
      EXPECT_LE(estimate.split(largest).total(), bytes);
      EXPECT_GT(estimate.split(largest + 1).total(), bytes);
    }
    EXPECT_EQ(estimate.largest_batch(1'000'000), 0);
  }
}

TEST(MemoryEstimate, SeventyBillionParametersTakeNoMemoryToEstimate) {
  RunConfig config = config_of(TransformerBlock::kPostNorm, 8192);
  config.model.tf_n_layer = 80;
  config.model.tf_n_head = 64;
  const MemoryEstimate estimate = estimate_of(config);
  EXPECT_GT(estimate.parameter_count(), 60 * kGigabyte);
  EXPECT_GT(estimate.split(1).total(), 18 * estimate.parameter_count()) << "18 bytes a parameter";
}

/// Activations in GB as H200s had them on 2026-11-23, of the large model in 16 bits on 2026-11-28, of GPT-2,
/// large pre-norm blocks and the large model at all positions on 2026-11-29 (docs/benchmarks.md, "Memory by
/// parts"). Plain operators with dropout at first stored a byte for each element that they may drop.
TEST(MemoryEstimate, ActivationsAreThoseThatWereMeasured) {
  struct Measured {
    const char* file;
    std::vector<std::string> settings;
    double gigabytes;
    int64_t dropped_widths = 0;  ///< by stored masks: of a token in a block, in widths of the model
    double tolerance = 0.1;
  };
  const Measured all[] = {
      {"guide", {"train_batch_size=16384"}, 10.078},
      {"guide", {"train_batch_size=4096", "loss_positions=all"}, 5.869},
      {"guide", {"train_batch_size=4096", "mixed_precision=no"}, 18.734, 6},
      {"guide", {"train_batch_size=16384", "transformer_block=pre_norm"}, 12.642},
      {"guide", {"train_batch_size=2048", "model=GPT2", "transformer_block=gpt2"}, 11.766, 0, 0.11},
      {"guide", {}, 0.377},
      {"large", {}, 9.103},
      {"large", {"loss_positions=all"}, 18.65},
      {"large", {"train_batch_size=128"}, 36.207},
      {"large", {"train_batch_size=64", "mixed_precision=fp16"}, 20.359},
      {"large", {"train_batch_size=16", "mixed_precision=no"}, 10.496, 6},
      {"large", {"train_batch_size=64", "transformer_block=pre_norm"}, 25.560},
  };
  for (Measured measured : all) {
    measured.settings.push_back("eval_interval=0");
    std::vector<std::string> notices;
    const RunConfig config =
        RunConfig::load(fmt::format(ADTRAIN_SOURCE_DIR "/tests/benchmark/{}.yaml", measured.file),
                        measured.settings, notices);
    const auto estimated =
        static_cast<double>(estimate_of(config).split(config.training.train_batch_size).activations);
    const ModelOptions& model = config.model;
    const int64_t tokens = model.model == ModelKind::kGpt2 ? 3 * model.n_transit - 2 : model.n_transit;
    const auto masks = static_cast<double>(measured.dropped_widths * model.tf_n_embd * tokens *
                                           config.training.train_batch_size * (model.tf_n_layer - 1));
    EXPECT_NEAR(estimated, 1e9 * measured.gigabytes - masks, 1e9 * measured.tolerance * measured.gigabytes)
        << measured.file << " " << testing::PrintToString(measured.settings);
  }
}

/// Of XLand-100B's baseline without dropout, 64 × 4096 tokens in bf16: 24 bytes a token, feature and layer;
/// 12 without the MLP's hidden layer; 2 of a block that is computed again.
TEST(MemoryEstimate, WhatIsComputedAgainIsNotKept) {
  RunConfig config = config_of(TransformerBlock::kXland, 512);
  config.model.tf_n_head = 8;
  config.model.tf_n_layer = 8;
  config.model.n_transit = 4096;
  config.model.tf_dropout = config.model.tf_attn_dropout = 0;
  config.training.loss_positions = LossPositions::kAll;
  constexpr int64_t kBatch = 64;
  const auto activations = [&](Recompute recompute, int64_t layers) {
    config.model.recompute = recompute;
    config.model.tf_n_layer = layers;
    return estimate_of(config).split(kBatch).activations;
  };
  const auto feature = static_cast<double>(kBatch * config.model.n_transit * 512);
  for (const auto& [recompute, bytes] :
       {std::pair{Recompute::kNone, 24.0}, {Recompute::kMlp, 12.0}, {Recompute::kBlock, 2.0}}) {
    const int64_t of_a_layer = activations(recompute, 8) - activations(recompute, 7);
    EXPECT_NEAR(static_cast<double>(of_a_layer), bytes * feature, 0.4 * feature);
  }
  // One block at a time has all that it would have kept.
  EXPECT_EQ(activations(Recompute::kMlp, 1), activations(Recompute::kNone, 1));
  EXPECT_EQ(activations(Recompute::kBlock, 1),
            activations(Recompute::kNone, 1) + static_cast<int64_t>(2 * feature));
}

/// A bit for each of 4096 keys of a query, in each of 8 heads.
TEST(MemoryEstimate, WhichKeysAreKeptIsStoredWhereAttentionDrops) {
  RunConfig config = config_of(TransformerBlock::kXland, 512);
  config.model.tf_n_head = 8;
  config.model.n_transit = 4096;
  config.model.tf_dropout = 0.1;
  config.training.loss_positions = LossPositions::kAll;
  constexpr int64_t kBatch = 4;
  const auto of_a_layer = [&](double rate) {
    config.model.tf_attn_dropout = rate;
    int64_t activations[2];
    for (const int64_t layers : {7, 8}) {
      config.model.tf_n_layer = layers;
      activations[layers - 7] = estimate_of(config).split(kBatch).activations;
    }
    return activations[1] - activations[0];
  };
  EXPECT_EQ(of_a_layer(0.1) - of_a_layer(0.0), kBatch * 4096 * 8 * 4096 / 8);
}

TEST(MemoryEstimate, EveryNetworkTakesLessWithRecomputation) {
  for (RunConfig config : configs()) {
    const int64_t none = estimate_of(config).split(4096).activations;
    const bool whole_blocks = estimate_of(config).plan().whole_blocks();
    config.model.recompute = Recompute::kMlp;
    const int64_t mlp = estimate_of(config).split(4096).activations;
    config.model.recompute = Recompute::kBlock;
    EXPECT_LT(estimate_of(config).split(4096).activations, mlp);
    if (whole_blocks) {
      EXPECT_EQ(mlp, none) << "their kernels keep nothing of the MLP anyway";
    } else {
      EXPECT_LT(mlp, none);
    }
  }
}

TEST(MemoryEstimate, AHeldOutLossOfMoreRowsComesOnTop) {
  RunConfig config = config_of(TransformerBlock::kPostNorm, 64);
  const int64_t without = estimate_of(config).split(64).activations;
  config.training.eval_interval = 100;
  config.training.test_batch_size = 256;
  const MemoryEstimate estimate = estimate_of(config);
  EXPECT_GT(estimate.held_out_bytes(64), 0);
  EXPECT_EQ(estimate.split(64).activations, without + estimate.held_out_bytes(64));
  EXPECT_EQ(estimate.held_out_bytes(256), 0) << "it uses the memory of training again";
}

TEST(MemoryEstimate, TheMicroBatchFollowsFromTheGlobalBatch) {
  RunConfig config = config_of(TransformerBlock::kPostNorm, 64);
  config.training.global_batch_size = 96;
  config.training.gradient_accumulation_steps = 2;
  EXPECT_EQ(estimate_of(config, 4).configured_batch(), 12);
  EXPECT_EQ(estimate_of(config, 5).configured_batch(), std::nullopt);
  config.training.global_batch_size.reset();
  config.training.train_batch_size = kAutoBatchSize;
  EXPECT_EQ(estimate_of(config, 4).configured_batch(), 1);
}

TEST(MemoryEstimate, ACopyIsSentWhereGradientsTravelInSixteenBits) {
  RunConfig config = config_of(TransformerBlock::kPostNorm, 64);
  const int64_t alone = estimate_of(config).split(1).gradients;
  config.distributed.gradient_wire_type = WireType::kBFloat16;
  EXPECT_EQ(estimate_of(config).split(1).gradients, alone) << "one rank sends nothing";
  EXPECT_EQ(estimate_of(config, 2).split(1).gradients, alone * 3 / 2);
}

}  // namespace
}  // namespace adtrain
