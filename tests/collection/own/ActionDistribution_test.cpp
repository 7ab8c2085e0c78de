#include "collection/own/ActionDistribution.h"

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/Error.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

TEST(ActionDistribution, DrawsWholeNumbersAsOftenAsTheirLogitsSay) {
  const ActionDistribution distribution(Space::multi_discrete({2}, {3, 2}));
  const at::Tensor probabilities = at::tensor({0.5, 0.3, 0.2, 0.1, 0.9}).to(at::kFloat);
  constexpr int64_t kDraws = 40'000;
  RandomStream random(fresh_seed());
  std::vector<float> actions(2 * kDraws);
  distribution.draw(probabilities.log().expand({kDraws, 5}).contiguous(), at::empty({0}), random, actions);
  std::array<double, 5> shares{};
  for (int64_t i = 0; i < kDraws; ++i) {
    shares[static_cast<size_t>(actions[static_cast<size_t>(2 * i)])] += 1.0 / kDraws;
    shares[3 + static_cast<size_t>(actions[static_cast<size_t>(2 * i + 1)])] += 1.0 / kDraws;
  }
  for (size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(shares[i], probabilities[static_cast<int64_t>(i)].item<double>(), 0.015);  // 6 deviations
}

TEST(ActionDistribution, DrawsRealNumbersWithTheMeanAndDeviationOfEachElement) {
  const ActionDistribution distribution(Space::box({2}, {-1}, {1}));
  const at::Tensor means = at::tensor({3.0, -0.5}).to(at::kFloat),
                   deviations = at::tensor({2.0, 0.1}).to(at::kFloat);
  constexpr int64_t kDraws = 40'000;
  RandomStream random(fresh_seed());
  at::Tensor actions = at::empty({kDraws, 2}, at::kFloat);
  distribution.draw(means.expand({kDraws, 2}), deviations.log(), random,
                    {actions.mutable_data_ptr<float>(), 2 * kDraws});
  const at::Tensor errors = (actions.mean(0) - means) / deviations;
  EXPECT_LT(errors.abs().max().item<double>(), 0.03) << "not clipped to the box";
  EXPECT_TRUE(at::allclose(actions.std(0), deviations, 0.03, 0));
}

TEST(ActionDistribution, WritesRowsOfTheSpacesOwnTypeAndStart) {
  Space space = Space::multi_discrete({3}, {4, 4, 4});
  space.type = ElementType::kInt16;
  space.start = {0, -2, 7};
  std::array<int16_t, 6> rows{};
  const std::array<float, 6> actions = {0, 1, 2, 3, 3, 3};
  ActionDistribution(space).write(actions, std::as_writable_bytes(std::span(rows)));
  EXPECT_EQ(rows, (std::array<int16_t, 6>{0, -1, 9, 3, 1, 10}));
}

TEST(ActionDistribution, RefusesABoxOfWholeNumbers) {
  EXPECT_THROW(ActionDistribution(Space::box({1}, {0}, {5}, ElementType::kInt32)), ConfigError);
}

}  // namespace
}  // namespace adtrain
