#include "evaluation/Predictor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "evaluation/Rollout.h"
#include "evaluation/TransitionRows.h"

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

}  // namespace
}  // namespace adtrain
