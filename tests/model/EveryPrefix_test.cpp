// Loss at all positions must be exactly the published forward pass on every prefix.

#include <gtest/gtest.h>

#include "model/RandomBatch.h"
#include "model/SumOverPrefixes.h"

namespace adtrain {
namespace {

using testing::expect_sums_over_prefixes;
using testing::plain_variants;
using testing::prefix;
using testing::random_compressed;
using testing::random_plain;
using testing::relative_error;
using testing::small_model;
using testing::variant;

constexpr int64_t kLength = 9;

TEST(EveryPrefix, EachQuerysLogitsAreThoseOfThePlainPassOnItsPrefix) {
  for (const auto& each : plain_variants()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    const Batch batch = random_plain(3, kLength);
    const at::Tensor all = model->forward(batch, LossPositions::kAll, false).actions;
    ASSERT_EQ(all.sizes(), at::IntArrayRef({3, kLength, 5}));
    for (int64_t i = 0; i < kLength; ++i) {
      EXPECT_LT(relative_error(all.select(1, i), model->predict(prefix(batch, i + 1)).actions), 1e-5)
          << "query " << i;
    }
  }
}

TEST(EveryPrefix, ActionsThatAreNoTargetsHaveNoLoss) {
  const std::vector<int> leading = {0, 4, kLength - 1};
  for (const auto& each : plain_variants()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    Batch batch = random_plain(3, kLength);
    const at::Tensor logits = model->forward(batch, LossPositions::kAll, false).actions.detach();
    batch.current = at::tensor(leading, at::kInt);
    const auto loss_of = [&](const at::Tensor& of_query, int64_t taken) {
      const double smoothing = model->options().label_smoothing;
      const at::Tensor log_probabilities = of_query.log_softmax(0);
      return -(1 - smoothing) * log_probabilities[taken].item<double>() -
             smoothing * log_probabilities.mean().item<double>();
    };
    double sum = 0;
    int64_t correct = 0;
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t i = leading[static_cast<size_t>(row)]; i < kLength; ++i) {
        const auto taken = batch.actions[row][i].item<int64_t>();
        sum += loss_of(logits[row][i], taken);
        correct += logits[row][i].argmax().item<int64_t>() == taken ? 1 : 0;
      }
    }
    const auto loss = model->loss(batch, LossPositions::kAll, false);
    EXPECT_NEAR(loss.sum.item<double>(), sum, 1e-4 * sum);
    EXPECT_EQ(loss.correct.item<int64_t>(), correct);
    Batch others = batch;  // other actions that are no targets, but the last one's context: it alone changes
    others.actions = batch.actions.clone();
    const at::Tensor changed = others.actions[2].narrow(0, 0, kLength - 1);
    changed.copy_((changed + 1) % 5);
    const at::Tensor before = logits[2][kLength - 1],
                     after = model->forward(others, LossPositions::kAll, false).actions[2][kLength - 1];
    EXPECT_FALSE(at::equal(after, before));
    const auto target = batch.actions[2][kLength - 1].item<int64_t>();
    EXPECT_NEAR(model->loss(others, LossPositions::kAll, false).sum.item<double>(),
                sum + loss_of(after, target) - loss_of(before, target), 1e-4 * sum);
    const auto last = model->loss(batch, LossPositions::kLast, false);
    Batch plain = batch;
    plain.current = at::Tensor();
    EXPECT_EQ(last.sum.item<double>(), model->loss(plain, LossPositions::kLast, false).sum.item<double>());
  }
}

/// Rows whose query stands `current` transitions into the last region of `batch`, whose regions are full.
Batch asked_earlier(const Batch& batch, int32_t current, int64_t interval) {
  Batch earlier = batch;
  const int64_t rows = batch.size();
  earlier.current = at::full({rows}, current, at::kInt);
  if (current == interval) return earlier;
  earlier.query_state = batch.query_state.clone();
  earlier.query_action = batch.query_action.clone();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t step = batch.previous[row].item<int64_t>() + current;
    earlier.query_state[row] = batch.states[row][step];
    earlier.query_action[row] = batch.actions[row][step];
  }
  return earlier;
}

TEST(EveryPrefix, HoldsForCompressedRowsWithAndWithoutARegionBefore) {
  const auto model = small_model(variant("compressed"));
  constexpr int64_t kInterval = 4;
  const Batch batch = random_compressed({0, kInterval, 2}, {kInterval, kInterval, kInterval}, kInterval);
  const auto all = model->forward(batch, LossPositions::kAll, false);
  ASSERT_EQ(all.actions.size(1), kInterval + 1);
  double sum = 0;
  for (int32_t i = 0; i <= kInterval; ++i) {
    const Batch earlier = asked_earlier(batch, i, kInterval);
    const auto alone = model->predict(earlier);
    EXPECT_LT(relative_error(all.actions.select(1, i), alone.actions), 1e-5) << "query " << i;
    EXPECT_LT(relative_error(all.token_types.select(1, i), alone.token_types), 1e-5) << "query " << i;
    sum += model->loss(earlier, LossPositions::kLast, false).sum.item<double>();
  }
  EXPECT_NEAR(model->loss(batch, LossPositions::kAll, false).sum.item<double>(), sum, 1e-5 * sum);
}

TEST(EveryPrefix, LossAndGradientsAreTheSumsOverPrefixes) {
  for (const auto& each : plain_variants()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    const Batch batch = random_plain(2, kLength);
    expect_sums_over_prefixes(*model, batch);
  }
}

TEST(EveryPrefix, NothingBehindAQueryReachesIt) {
  for (const auto& each : plain_variants()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    const Batch batch = random_plain(2, kLength);
    const at::Tensor before = model->forward(batch, LossPositions::kAll, false).actions;
    constexpr int64_t kChanged = 5;
    Batch changed = batch;
    changed.actions = batch.actions.clone();
    changed.rewards = batch.rewards.clone();
    changed.next_states = batch.next_states.clone();
    changed.actions.select(1, kChanged).add_(1).remainder_(5);
    changed.rewards.select(1, kChanged).add_(1);
    changed.next_states.select(1, kChanged).add_(1).remainder_(9);
    const at::Tensor after = model->forward(changed, LossPositions::kAll, false).actions;
    EXPECT_LT(relative_error(after.narrow(1, 0, kChanged + 1), before.narrow(1, 0, kChanged + 1)), 1e-6);
    for (int64_t i = kChanged + 1; i < kLength; ++i) {
      EXPECT_GT((after - before).select(1, i).abs().max().item<double>(), 1e-5) << "query " << i;
    }
  }
}

TEST(EveryPrefix, AnEmptyContextIsAPrefixToo) {
  for (const auto& each : plain_variants()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    const Batch batch = random_plain(4, 1);
    const at::Tensor alone = model->predict(batch).actions;
    ASSERT_EQ(alone.sizes(), at::IntArrayRef({4, 5}));
    EXPECT_TRUE(alone.isfinite().all().item<bool>());
    EXPECT_LT(relative_error(model->forward(batch, LossPositions::kAll, false).actions.squeeze(1), alone),
              1e-5);
  }
}

}  // namespace
}  // namespace adtrain
