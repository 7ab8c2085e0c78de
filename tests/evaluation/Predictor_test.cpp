#include "evaluation/Predictor.h"

#include <iostream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "base/Clock.h"
#include "base/Gpu.h"
#include "evaluation/Rollout.h"
#include "evaluation/TransitionRows.h"
#include "model/AnySpaceBatch.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

ModelOptions small_model() {
  ModelOptions options;
  options.tf_n_embd = 16;
  options.tf_n_layer = 1;
  options.tf_n_head = 2;
  options.n_transit = 30;
  options.compress_interval = 11;
  return options;
}

std::vector<ModelOptions> every_kind_of_model() {
  std::vector<ModelOptions> kinds(4, small_model());
  kinds[1].transformer_block = TransformerBlock::kPostNorm;
  kinds[2].model = ModelKind::kGpt2;
  kinds[3].use_compressed_context = true;
  return kinds;
}

TEST(Predictor, EveryModelRollsOutAndKeepsItsWeights) {
  const TaskFamily family = TaskFamily::of(EnvironmentOptions{});
  for (const ModelOptions& options : every_kind_of_model()) {
    const auto model = AlgorithmDistillation::create(options, ModelShape{}, 3);
    const at::Tensor before = model->parameters().flat().clone();
    Rollout rollout(family, std::vector<Trial>{{40, 0}, {31, 0}, {2, 0}}, options, EvaluationOptions{});
    int64_t queries = 0;
    const Predictor counting = [&](const Batch& batch) {
      const auto predictions = predictor_of(*model)(batch);
      EXPECT_EQ(predictions.actions.sizes(), (at::IntArrayRef{batch.size(), 5}));
      EXPECT_EQ(predictions.token_types.defined(), options.compressed());
      ++queries;
      return predictions;
    };
    for (int episode = 0; episode < 3; ++episode) rollout.run_episode(counting);
    EXPECT_GE(queries, 3 * 20);
    EXPECT_TRUE(at::equal(model->parameters().flat(), before));
  }
}

TEST(Predictor, SeveralDevicesPredictTheSame) {
  at::set_num_threads(1);
  ModelOptions options = small_model();
  options.transformer_block = TransformerBlock::kXland;
  options.tf_n_layer = 3;
  const auto whole = AlgorithmDistillation::create(options, ModelShape{}, 4);
  const auto model = AlgorithmDistillation::create(options, ModelShape{}, 4);
  const auto modules = modules_of(*model, at::kFloat);
  const MemoryLimits limits = {.gpus = {{0, 1 << 30}, {1, 1 << 30}}, .cpu = {}, .from_user = true};
  const DeviceMap map =
      DeviceMap::given("{embeddings: 0, blocks: 0, blocks.1: 1, blocks.2: 1, head: 1}", modules, limits, {});
  PlacedNetwork placed(*model, modules, map, {2, at::Device(at::kCPU)}, at::kFloat);
  ASSERT_EQ(placed.stages(), 2);
  const Batch batch = testing::random_plain(5, 9);
  const at::Tensor expected = predictor_of(*whole)(batch).actions;
  EXPECT_TRUE(at::equal(predictor_of(placed, 1)(batch).actions, expected));
  EXPECT_TRUE(at::allclose(predictor_of(placed, 3)(batch).actions, expected, 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(predictor_of(placed, 9)(batch).actions, expected, 1e-4, 1e-5));
}

TEST(Predictor, SaysWhatTheModelPredicts) {
  for (const ModelOptions& options : every_kind_of_model()) {
    const auto model = AlgorithmDistillation::create(options, ModelShape{}, 4);
    TransitionRows rows(2, 2 * options.compress_interval);
    rows.put_state(1, 0, std::vector<int32_t>{1, 2, 7, 8});
    Batch batch = rows.first(2 * options.compress_interval);
    if (options.compressed()) {
      batch.previous = at::tensor({4, 0}, at::kInt);
      batch.current = at::tensor({0, 2}, at::kInt);
      batch.query_state = at::tensor({3, 4, 5, 6}, at::kInt).view({2, 2});
    }
    const auto expected = model->predict(batch);
    const auto predictions = predictor_of(*model)(batch);
    EXPECT_TRUE(at::equal(predictions.actions, expected.actions));
    if (!options.compressed()) continue;
    EXPECT_TRUE(at::equal(predictions.token_types, expected.token_types));
  }
}

/// Of rows whose window fills, is full and wraps. Two predictors that take turns have rows of their own.
TEST(RollingPredictors, CapturedStepsAreTheEagerOnes) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const c10::cuda::CUDAStreamGuard on_side(c10::cuda::getStreamFromPool());
  for (testing::SpaceVariant& each : testing::space_variants()) {
    SCOPED_TRACE(each.name);
    each.options.tf_n_embd = 64;
    if (each.options.block_pieces().positions == PositionKind::kLearned) continue;
    const auto model = testing::small_model(each);
    model->parameters().to(at::kCUDA, at::kBFloat16);
    ASSERT_TRUE(model->rolling_repeats());
    const auto captured = rolling_predictors_of(*model, /*captures=*/true);
    const auto eager = rolling_predictors_of(*model, /*captures=*/false);
    const int64_t steps = 3 * each.options.n_transit;
    const Batch rows = testing::random_rows(each, 3, steps), others = testing::random_rows(each, 5, steps);
    const Predictor of_rows = captured(), of_others = captured(), expected = eager(),
                    of_others_eager = eager();
    for (int64_t step = 0; step < steps; ++step) {
      const auto is_expected = [&](const Predictor& found, const Predictor& right, const Batch& batch) {
        const Batch newest = testing::window(batch, step, 1);
        const at::Tensor of_eager = right(newest).actions;
        return at::allclose(found(newest).actions, of_eager, 1e-2, 1e-2);
      };
      EXPECT_TRUE(is_expected(of_rows, expected, rows)) << "step " << step;
      EXPECT_TRUE(is_expected(of_others, of_others_eager, others)) << "step " << step;
    }
  }
}

/// Of a half of 1024 environments with the network of XLand-100B's baseline, whose weights are random, over
/// 4096 steps: from rows to logits, both on the CPU. For people.
TEST(RollingPredictorsSpeed, DISABLED_MillisecondsALockStep) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  constexpr int64_t kRows = 512, kSteps = 64, kMeasured = 50;
  const c10::cuda::CUDAStreamGuard on_side(c10::cuda::getStreamFromPool());
  testing::SpaceVariant xland = testing::space_variant("", TransformerBlock::kXland, testing::xland_spaces());
  xland.options.tf_n_embd = 512;
  xland.options.tf_n_layer = xland.options.tf_n_head = 8;
  xland.options.n_transit = 4096;
  const Batch rows = testing::random_rows(xland, kRows, kSteps);
  for (const PositionKind positions : {PositionKind::kAlibi, PositionKind::kNone}) {
    xland.options.pieces.positions = positions;
    const auto model = testing::small_model(xland);
    model->parameters().to(at::kCUDA, at::kBFloat16);
    for (const bool captures : {false, true}) {
      const Predictor predict = rolling_predictors_of(*model, captures)();
      int64_t steps = 0;
      const auto milliseconds_after = [&](int64_t count) {
        while (steps < count) predict(testing::window(rows, steps++ % kSteps, 1));
        const Stopwatch watch;
        while (steps < count + kMeasured) predict(testing::window(rows, steps++ % kSteps, 1));
        return 1e3 * watch.seconds() / kMeasured;
      };
      for (const int64_t count : {int64_t{10}, xland.options.n_transit / 2, xland.options.n_transit}) {
        std::cout << xland.options.block_pieces().text() << (captures ? "; captured" : "; eager")
                  << ", after " << count << " steps: " << milliseconds_after(count) << " ms" << std::endl;
      }
    }
  }
}

}  // namespace
}  // namespace adtrain
