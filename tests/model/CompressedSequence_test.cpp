#include "model/CompressedSequence.h"

#include <gtest/gtest.h>

#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using testing::random_compressed;
using testing::random_plain;
using testing::relative_error;
using testing::small_model;
using testing::variant;

constexpr int64_t kInterval = 4;

/// One row, cut to a layout just wide enough for its longer region.
Batch alone(const Batch& batch, int64_t row) {
  const int64_t previous = batch.previous[row].item<int64_t>();
  const int64_t current = batch.current[row].item<int64_t>();
  const int64_t width = 2 * std::max<int64_t>({previous, current, 1});
  Batch cut = testing::part(testing::part(batch, 0, row, 1), 1, 0, width);
  cut.previous = batch.previous.narrow(0, row, 1);
  cut.current = batch.current.narrow(0, row, 1);
  cut.query_state = batch.query_state.narrow(0, row, 1);
  cut.query_action = batch.query_action.narrow(0, row, 1);
  return cut;
}

TEST(CompressedSequence, ARowMeansTheSameAloneAsAmongLongerOnes) {
  const auto model = small_model(variant("compressed"));
  const Batch batch = random_compressed({0, 0, 4, 4, 2, 0, 4}, {0, 3, 0, 4, 1, 4, 2}, kInterval);
  const auto together = model->predict(batch);
  for (int64_t row = 0; row < batch.size(); ++row) {
    const auto single = model->predict(alone(batch, row));
    EXPECT_LT(relative_error(together.actions[row], single.actions[0]), 1e-5) << "row " << row;
    EXPECT_LT(relative_error(together.token_types[row], single.token_types[0]), 1e-5) << "row " << row;
  }
}

TEST(CompressedSequence, PaddingReachesNeitherLogitsNorGradients) {
  const auto model = small_model(variant("compressed"));
  const Batch batch = random_compressed({0, 4, 2}, {2, 1, 0}, kInterval);
  Batch other = batch;
  const at::Tensor used = (batch.previous + batch.current).unsqueeze(1);
  const at::Tensor padding = at::arange(2 * kInterval).unsqueeze(0).ge(used);
  const Batch noise = random_plain(3, 2 * kInterval);
  other.states = at::where(padding.unsqueeze(-1), noise.states, batch.states);
  other.actions = at::where(padding, noise.actions, batch.actions);
  other.rewards = at::where(padding, noise.rewards + 3, batch.rewards);
  other.next_states = at::where(padding.unsqueeze(-1), noise.next_states, batch.next_states);
  EXPECT_LT(relative_error(model->predict(other).actions, model->predict(batch).actions), 1e-6);
  const auto gradient = [&](const Batch& rows) {
    return testing::flat_gradient(*model, model->loss(rows, LossPositions::kLast, false).sum);
  };
  EXPECT_LT(relative_error(gradient(other), gradient(batch)), 1e-6);
}

TEST(CompressedSequence, EveryTransitionAndMarkerIsRead) {
  const auto model = small_model(variant("compressed"));
  const Batch batch = random_compressed({4}, {3}, kInterval);
  const at::Tensor before = model->predict(batch).actions;
  for (int64_t step = 0; step < 7; ++step) {
    Batch changed = batch;
    changed.rewards = batch.rewards.clone();
    changed.rewards[0][step] += 5;
    EXPECT_GT((model->predict(changed).actions - before).abs().max().item<double>(), 1e-4) << "step " << step;
  }
  for (const auto& [name, parameter] : model->parameters().named()) {
    if (name != "compress_start_token" && name != "compress_end_token") continue;
    const at::NoGradGuard no_grad;
    parameter.add_(at::randn_like(parameter));
    EXPECT_GT((model->predict(batch).actions - before).abs().max().item<double>(), 1e-4) << name;
  }
}

TEST(CompressedSequence, ABatchOfEmptyContextsWorks) {
  const auto model = small_model(variant("compressed"));
  const Batch batch = random_compressed({0, 0}, {0, 0}, kInterval);
  EXPECT_TRUE(model->predict(batch).actions.isfinite().all().item<bool>());
  const auto loss = model->loss(batch, LossPositions::kLast, true);
  EXPECT_TRUE(testing::flat_gradient(*model, loss.sum).isfinite().all().item<bool>());
}

TEST(CompressedSequence, TargetsAreTheRegionsActionsAndItsEnd) {
  const Batch batch = random_compressed({0, 4}, {4, 4}, kInterval);
  const at::Tensor targets = compressed_targets(batch, LossPositions::kAll);
  ASSERT_EQ(targets.sizes(), at::IntArrayRef({2, 5}));
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(targets[0][i].item<int64_t>(), batch.actions[0][i].item<int64_t>());
    EXPECT_EQ(targets[1][i].item<int64_t>(), batch.actions[1][4 + i].item<int64_t>());
  }
  EXPECT_TRUE(targets.select(1, 4).eq(-1).all().item<bool>());
  EXPECT_TRUE(
      at::equal(compressed_targets(batch, LossPositions::kLast).squeeze(1).to(at::kInt), batch.query_action));
}

TEST(CompressedSequence, PredictionNeedsNoTarget) {
  const auto model = small_model(variant("compressed"));
  Batch batch = random_compressed({4}, {2}, kInterval);
  batch.query_action = at::Tensor();
  EXPECT_EQ(model->predict(batch).token_types.sizes(), at::IntArrayRef({1, 3}));
}

}  // namespace
}  // namespace adtrain
