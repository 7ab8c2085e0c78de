#include "evaluation/scoring/ActionScorer.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

ModelShape acting_in(Space action) {
  ModelShape shape;
  shape.spaces = {{Space::discrete(3), std::move(action), {}}};
  return shape;
}

ModelOptions with_head(ActionHeadKind head) {
  ModelOptions options;
  options.transformer_block = TransformerBlock::kPreNorm;
  options.space_pieces.action_head = head;
  return options.of_own_tasks();
}

std::span<const float> span_of(const at::Tensor& numbers) {
  return {numbers.const_data_ptr<float>(), static_cast<size_t>(numbers.numel())};
}

TEST(ActionScorer, DiscreteActionsAreScoredAsByPlainOperators) {
  Space space = Space::discrete(7);
  space.start = {2};
  const ActionScorer scorer(with_head(ActionHeadKind::kAuto), acting_in(space));
  EXPECT_STREQ(scorer.loss_name(), "cross_entropy");
  for (int round = 0; round < 20; ++round) {
    const at::Tensor logits = 5 * at::randn({7});
    const at::Tensor probabilities = logits.to(at::kDouble).softmax(0);
    const at::Tensor order = logits.argsort(0, /*descending=*/true);
    for (int64_t place = 0; place < 7; ++place) {
      const int64_t value = order[place].item<int64_t>();
      const std::vector<double> action = {static_cast<double>(value + 2)};
      const ActionScore score = scorer(span_of(logits), action);
      const double probability = probabilities[value].item<double>();
      EXPECT_NEAR(score.probability, probability, 1e-7);
      EXPECT_NEAR(score.loss, -std::log(probability), 1e-5);
      EXPECT_EQ(score.rank, place + 1);
    }
  }
  const at::Tensor logits = at::zeros({7});
  for (const double outside : {1.0, 9.0})
    EXPECT_THROW(scorer(span_of(logits), std::vector{outside}), DataError) << outside;
}

TEST(ActionScorer, EqualLogitsShareARankAndLargeOnesStayFinite) {
  const ActionScorer scorer(ModelOptions{}, ModelShape{});
  const at::Tensor logits = at::tensor({1e4F, 3.0F, 3.0F, -1e4F, 3.0F});
  EXPECT_EQ(scorer(span_of(logits), std::vector{4.0}).rank, 2);
  EXPECT_EQ(scorer(span_of(logits), std::vector{1.0}).rank, 2);
  const ActionScore last = scorer(span_of(logits), std::vector{3.0});
  EXPECT_EQ(last.rank, 5);
  EXPECT_EQ(last.loss, 2e4F);
  EXPECT_EQ(last.probability, 0);
  const at::Tensor broken = at::full({5}, std::nan(""), at::kFloat);
  EXPECT_TRUE(std::isnan(scorer(span_of(broken), std::vector{0.0}).loss));
  EXPECT_EQ(scorer(span_of(broken), std::vector{0.0}).rank, ActionScore::kNoRank);
}

TEST(ActionScorer, ActionsOfSeveralElementsAreRankedAmongAllJointOnes) {
  Space space = Space::multi_discrete({3}, {2, 3, 4});
  space.start = {0, -1, 5};
  const ActionScorer scorer(with_head(ActionHeadKind::kAuto), acting_in(space));
  const at::Tensor logits = at::randn({9});
  const auto parts = logits.to(at::kDouble).split_with_sizes({2, 3, 4});
  const at::Tensor joint = (parts[0].log_softmax(0).view({2, 1, 1}) + parts[1].log_softmax(0).view({3, 1}) +
                            parts[2].log_softmax(0));
  for (int64_t a = 0; a < 2; ++a) {
    for (int64_t b = 0; b < 3; ++b) {
      for (int64_t c = 0; c < 4; ++c) {
        const double found = joint[a][b][c].item<double>();
        const ActionScore score = scorer(
            span_of(logits),
            std::vector{static_cast<double>(a), static_cast<double>(b - 1), static_cast<double>(c + 5)});
        EXPECT_NEAR(score.loss, -found, 1e-5);
        EXPECT_NEAR(score.probability, std::exp(found), 1e-6);
        EXPECT_EQ(score.rank, 1 + joint.gt(found + 1e-9).sum().item<int64_t>());
      }
    }
  }
}

TEST(ActionScorer, TooManyJointActionsAreNotCounted) {
  const ActionScorer scorer(with_head(ActionHeadKind::kAuto), acting_in(Space::multi_discrete({20}, {3})));
  const at::Tensor logits = at::tensor({0.0F, 1.0F, 2.0F}).repeat({20});
  std::vector<double> action(20, 2.0);
  EXPECT_EQ(scorer(span_of(logits), action).rank, 1);
  action[7] = 1;
  EXPECT_EQ(scorer(span_of(logits), action).rank, ActionScore::kNoRank);
}

TEST(ActionScorer, RealActionsHaveTheLossOfTheirHead) {
  const Space box = Space::box({2, 2}, {-1e6}, {1e6});
  const at::Tensor predictions = at::randn({8}), taken = at::randn({4}, at::kDouble);
  const std::vector<double> action(taken.const_data_ptr<double>(), taken.const_data_ptr<double>() + 4);
  const at::Tensor mean = predictions.narrow(0, 0, 4).to(at::kDouble);
  const at::Tensor logarithm = predictions.narrow(0, 4, 4).to(at::kDouble);

  const ActionScorer squared(with_head(ActionHeadKind::kMse), acting_in(box));
  EXPECT_STREQ(squared.loss_name(), "squared_error");
  const ActionScore error = squared(span_of(predictions.narrow(0, 0, 4)), action);
  EXPECT_NEAR(error.loss, (mean - taken).square().mean().item<double>(), 1e-5);
  EXPECT_TRUE(std::isnan(error.probability));
  EXPECT_EQ(error.rank, ActionScore::kNoRank);

  const ActionScorer gaussian(with_head(ActionHeadKind::kGaussian), acting_in(box));
  EXPECT_STREQ(gaussian.loss_name(), "negative_log_likelihood");
  // By the logarithm of the density: far from the mean the density itself is less than any double.
  const at::Tensor deviations_off = (taken - mean) / logarithm.exp();
  const double loss = (deviations_off.square() / 2 + logarithm + std::log(2 * M_PI) / 2).sum().item<double>();
  EXPECT_NEAR(gaussian(span_of(predictions), action).loss, loss, 1e-5 * std::max(1.0, std::abs(loss)));
}

}  // namespace
}  // namespace adtrain
