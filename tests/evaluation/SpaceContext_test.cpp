#include "evaluation/spaces/SpaceContext.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Random.h"

namespace adtrain {
namespace {

/// All that was ever seen, one tensor a step.
struct Seen {
  std::vector<at::Tensor> states, actions, rewards, begins;
};

at::Tensor last(const std::vector<at::Tensor>& steps, size_t count) {
  return at::stack(std::vector<at::Tensor>(steps.end() - static_cast<int64_t>(count), steps.end()), 1);
}

TEST(SpaceContext, HoldsTheLastStepsAndTheOneBefore) {
  const TaskSpaces spaces = {Space::multi_discrete({3, 2}, {156}), Space::box({2}, {-1}, {1}), {}};
  constexpr int64_t kRows = 4, kSteps = 5;
  const at::Tensor scale = at::rand({kRows});
  SpaceContext context(kRows, kSteps, spaces, {.reward = scale, .state_mean = {}, .state_deviation = {}});
  Seen seen;
  for (int64_t step = 0; step < 33; ++step) {
    const at::Tensor states = at::randint(156, {kRows, 3, 2}), begins = at::randint(2, {kRows}, at::kByte);
    context.observe(states, begins);
    seen.states.push_back(states);
    seen.begins.push_back(begins);
    seen.actions.push_back(at::zeros({kRows, 2}));
    seen.rewards.push_back(at::zeros({kRows}));

    const Batch batch = context.batch();
    const size_t length = std::min<size_t>(kSteps, seen.states.size());
    ASSERT_TRUE(batch.of_any_space());
    EXPECT_TRUE(batch.states.equal(last(seen.states, length).to(batch.states.scalar_type())))
        << "step " << step;
    EXPECT_TRUE(batch.actions.equal(last(seen.actions, length))) << "step " << step;
    EXPECT_TRUE(batch.rewards.equal(last(seen.rewards, length))) << "step " << step;
    EXPECT_TRUE(batch.begins.equal(last(seen.begins, length))) << "step " << step;
    const bool has_before = seen.states.size() > length;
    const size_t before = has_before ? seen.states.size() - length - 1 : 0;
    EXPECT_TRUE(batch.before_action.equal(has_before ? seen.actions[before] : at::zeros({kRows, 2})));
    EXPECT_TRUE(batch.before_reward.equal(has_before ? seen.rewards[before] : at::zeros({kRows})));

    seen.actions.back() = at::randn({kRows, 2});
    const at::Tensor rewards = at::randn({kRows}, at::kDouble);
    seen.rewards.back() = rewards.to(at::kFloat) * scale;
    context.complete(seen.actions.back(), rewards);
  }
}

/// libtorch computes with few of the unsigned types that environments and files have.
TEST(SpaceContext, HoldsNumbersInTheTypesOfTraining) {
  TaskSpaces spaces = {Space::multi_discrete({2}, {70000}), Space::discrete(3), {}};
  spaces.observation.type = ElementType::kUint32;
  spaces.action.type = ElementType::kUint16;
  SpaceContext context(2, 4, spaces, {});
  const at::Tensor states = at::tensor({69999, 1, 2, 3}).view({2, 2});
  context.observe(states.to(at::kUInt32), at::ones({2}, at::kByte));
  EXPECT_EQ(context.batch().states.scalar_type(), at::kLong);
  EXPECT_TRUE(context.batch().states.select(1, 0).equal(states.to(at::kLong)));
  EXPECT_EQ(context.batch().actions.scalar_type(), at::kInt);
}

TEST(SpaceContext, SaysWhatObservationsAreNormalisedBy) {
  const TaskSpaces spaces = {Space::box({2}, {-1}, {1}), Space::discrete(3), {}};
  const at::Tensor mean = at::randn({2, 2}), deviation = at::rand({2, 2});
  SpaceContext context(2, 4, spaces, {.reward = {}, .state_mean = mean, .state_deviation = deviation});
  context.observe(at::zeros({2, 2}), at::ones({2}, at::kByte));
  EXPECT_TRUE(context.batch().state_mean.equal(mean));
  EXPECT_TRUE(context.batch().state_deviation.equal(deviation));
}

}  // namespace
}  // namespace adtrain
