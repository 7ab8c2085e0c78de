#include "evaluation/Predictor.h"

#include <algorithm>
#include <iostream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "ScriptedPolicies.h"
#include "base/Clock.h"
#include "base/Gpu.h"
#include "evaluation/Rollout.h"
#include "evaluation/SlidingContext.h"
#include "evaluation/TransitionRows.h"
#include "model/AnySpaceBatch.h"
#include "model/QuantisedNetwork.h"
#include "model/RandomBatch.h"
#include "support/FreshSeed.h"

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
  std::vector<testing::SpaceVariant> variants = testing::space_variants();
  for (testing::SpaceVariant& each : variants) {
    SCOPED_TRACE(each.name);
    each.options.tf_n_embd = 64;
    const auto model = testing::small_model(each);
    // Every other network with weights of 4 bits or 8, the latter with outliers or without.
    const size_t kind = static_cast<size_t>(&each - variants.data()) % 6;
    if (kind % 2 == 1) {
      const WeightQuantisation how = {.code = kind == 1 ? QuantisedCode::nf4 : QuantisedCode::int8,
                                      .outlier_threshold = kind == 5 ? 2.0 : 0.0};
      model->quantise(quantised_names(model->parameters(), "", ""), how, at::kCUDA, at::kBFloat16);
    } else {
      model->parameters().to(at::kCUDA, at::kBFloat16);
    }
    ASSERT_TRUE(model->rolling_repeats());
    const auto captured = rolling_predictors_of(*model, EvaluationContext::kRolling, /*captures=*/true).begin;
    const auto eager = rolling_predictors_of(*model, EvaluationContext::kRolling, /*captures=*/false).begin;
    const int64_t steps = (model->rolling_slides() ? 3 : 1) * each.options.n_transit;
    // Of more than 64, weights of 4 bits and 8 are dequantised for each product.
    const Batch rows = testing::random_rows(each, 3, steps), others = testing::random_rows(each, 70, steps);
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

/// A context that keeps keys and values beside one that does not, while both see the same steps in episodes
/// of three. `forget`: as forget_unrewarded of SlidingContext.
void expect_the_same_answers(AlgorithmDistillation& model, const RollingPredictors& kept, int64_t steps,
                             double tolerance, std::optional<int64_t> forget = std::nullopt) {
  constexpr int64_t kRows = 3;
  ASSERT_TRUE(kept);
  RandomStream stream(fresh_seed());
  SlidingContext keeping(kRows, model.options().n_transit, kept, forget);
  SlidingContext plain(kRows, model.options().n_transit, {}, forget);
  int whole = 0;
  const Predictor predict = predictor_of(model);
  const Predictor counting = [&](const Batch& batch) {
    ++whole;
    return predict(batch);
  };
  for (int64_t step = 0; step < steps; ++step) {
    RandomStep next(stream, kRows);
    if (forget) {
      for (float& reward : next.rewards) reward = stream.below(8) == 0 ? 1.0F : 0.0F;
      if (step < 3) next.rewards[0] = 0;  // so that at least this row is emptied
    }
    EXPECT_TRUE(at::allclose(keeping.ask(counting, next.states), plain.ask(predict, next.states), tolerance,
                             tolerance))
        << "step " << step;
    const std::vector<uint8_t> ended(kRows, step % 3 == 2 ? 1 : 0);
    StepOfRows view = next.view();
    view.ended = ended;
    keeping.append(view);
    plain.append(view);
  }
  if (forget) {
    EXPECT_GT(whole, steps - model.options().n_transit) << "an emptied row ends what was kept";
  } else {
    EXPECT_EQ(whole, std::max<int64_t>(0, steps - model.options().n_transit));
  }
}

TEST(RollingPredictors, ContextsKeepKeysAsLongAsTheyGrowAndThenShowTheWindow) {
  for (const ModelOptions& options : every_kind_of_model()) {
    const auto model = AlgorithmDistillation::create(options, ModelShape{}, 4);
    RollingPredictors kept = rolling_predictors_of(*model, EvaluationContext::kRolling, /*captures=*/true);
    EXPECT_EQ(static_cast<bool>(kept), !options.compressed());
    EXPECT_FALSE(rolling_predictors_of(*model, EvaluationContext::kRecompute, false)) << "not on CPUs";
    if (!kept) continue;
    EXPECT_EQ(kept.slides, options.block() == TransformerBlock::kPreNorm);
    kept.slides = false;
    expect_the_same_answers(*model, kept, 2 * options.n_transit, 1e-5);
    expect_the_same_answers(*model, kept, 60, 1e-5, /*forget=*/1);
  }
}

/// One block, whose keys have seen their own token alone: the context never shows a whole window.
TEST(RollingPredictors, ContextsThatSlideAskForTheNewestStepAlone) {
  constexpr int64_t kRows = 2;
  ModelOptions options = small_model();
  options.transformer_block = TransformerBlock::kPreNorm;
  options.n_transit = 6;
  const auto model = AlgorithmDistillation::create(options, ModelShape{}, 4);
  const RollingPredictors kept = rolling_predictors_of(*model, EvaluationContext::kRolling, false);
  RandomStream stream(fresh_seed());
  SlidingContext sliding(kRows, options.n_transit, kept), plain(kRows, options.n_transit);
  const Predictor never = [](const Batch&) -> AlgorithmDistillation::Predictions {
    throw std::logic_error("whole windows are not asked for");
  };
  for (int step = 0; step < 20; ++step) {
    const RandomStep next(stream, kRows);
    const at::Tensor expected = plain.ask(predictor_of(*model), next.states);
    EXPECT_TRUE(at::allclose(sliding.ask(never, next.states), expected, 1e-4, 1e-5)) << "step " << step;
    sliding.append(next.view());
    plain.append(next.view());
  }
}

/// On a GPU: with captured steps in bf16, and in fp32 as evaluations are by default.
TEST(RollingPredictors, ContextsOnAGpuKeepKeysToo) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const c10::cuda::CUDAStreamGuard on_side(c10::cuda::getStreamFromPool());
  for (ModelOptions options : every_kind_of_model()) {
    options.tf_n_embd = 128;
    const auto model = AlgorithmDistillation::create(options, ModelShape{}, 4);
    if (!model->why_not_rolling().empty()) continue;
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      model->parameters().to(at::kCUDA, type);
      EXPECT_EQ(model->rolling_repeats(), type == at::kBFloat16);
      const auto kept = rolling_predictors_of(*model, EvaluationContext::kRecompute, /*captures=*/true);
      expect_the_same_answers(*model, kept, 2 * options.n_transit, type == at::kFloat ? 1e-4 : 5e-2);
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
      const Predictor predict = rolling_predictors_of(*model, EvaluationContext::kRolling, captures).begin();
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

/// Of contexts of grids that grow, with keys and values kept and without: the large model of the benchmarks
/// and a GPT-2 of its size, 64 environments. For people.
TEST(RollingPredictorsSpeed, DISABLED_MillisecondsAStepOfGrids) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  constexpr int64_t kRows = 64, kSteps = 520, kMeasured = 20;
  const c10::cuda::CUDAStreamGuard on_side(c10::cuda::getStreamFromPool());
  ModelOptions options;
  options.tf_n_embd = 768;
  options.tf_n_layer = options.tf_n_head = 12;
  options.n_transit = 1024;
  for (const bool gpt2 : {false, true}) {
    options.transformer_block = gpt2 ? TransformerBlock::kAuto : TransformerBlock::kPostNorm;
    options.model = gpt2 ? ModelKind::kGpt2 : ModelKind::kAd;
    const auto model = AlgorithmDistillation::create(options, ModelShape{}, 4);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      model->parameters().to(at::kCUDA, type);
      const auto kept = rolling_predictors_of(*model, EvaluationContext::kRecompute, /*captures=*/true);
      for (const bool keeps : {false, true}) {
        RandomStream stream(7);
        SlidingContext context(kRows, options.n_transit, keeps ? kept : RollingPredictors());
        const RandomStep step(stream, kRows);
        const Predictor predict = predictor_of(*model);
        const Predictor unasked = [](const Batch& batch) {
          return AlgorithmDistillation::Predictions{at::zeros({batch.size(), 5}), {}};
        };
        double seconds = 0;
        for (int64_t count = 0; count < kSteps; ++count) {
          const bool measured = count + kMeasured >= kSteps;
          const Stopwatch watch;
          context.ask(keeps || count + 2 * kMeasured >= kSteps ? predict : unasked, step.states);
          if (measured) seconds += watch.seconds();
          context.append(step.view());
        }
        std::cout << (gpt2 ? "GPT-2" : "post-norm") << " 768/12/12, " << kRows
                  << " contexts of about 510 steps, " << c10::toString(type)
                  << (keeps ? ", kept: " : ", whole windows: ") << 1e3 * seconds / kMeasured << " ms a step"
                  << std::endl;
      }
    }
  }
}

}  // namespace
}  // namespace adtrain
