#include "collection/Ppo.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "collection/Divergence.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

EnvironmentOptions small_room() {
  EnvironmentOptions options;
  options.grid_size = 5;
  options.horizon = 10;
  return options;
}

PpoSettings short_settings(int64_t total_steps) {
  CollectionOptions options;
  options.n_stream = 20;
  options.n_steps = 20;
  options.total_source_timesteps = total_steps;
  options.source_lr = 1e-3;
  return options.ppo(Family::kDarkroom);
}

std::vector<int32_t> row(const std::vector<int32_t>& array, int64_t step, int64_t length) {
  const auto begin = array.begin() + step * length;
  return {begin, begin + length};
}

/// Plays the history's actions again.
void expect_lived(const TaskFamily& family, int64_t task, const History& history, bool terminal_next_states) {
  EnvironmentBatch environments(family, std::vector<int64_t>(static_cast<size_t>(history.streams), task));
  const auto vector = [](std::span<const int32_t> values) {
    return std::vector<int32_t>(values.begin(), values.end());
  };
  for (int64_t step = 0; step < history.steps; ++step) {
    ASSERT_EQ(row(history.states, step, 2 * history.streams), vector(environments.states()))
        << "step " << step;
    environments.step(row(history.actions, step, history.streams));
    const auto next = terminal_next_states ? environments.next_states() : environments.states();
    ASSERT_EQ(row(history.next_states, step, 2 * history.streams), vector(next)) << "step " << step;
    for (int64_t stream = 0; stream < history.streams; ++stream) {
      ASSERT_EQ(history.rewards[history.at(step, stream)],
                environments.rewards()[static_cast<size_t>(stream)]);
      ASSERT_EQ(history.dones[history.at(step, stream)] != 0, environments.done());
    }
  }
}

TEST(Ppo, HistoriesAreWhatTheEnvironmentsDid) {
  for (const char* env : {"darkroom", "darkroompermuted", "darkkeytodoor"}) {
    for (const bool terminal : {false, true}) {
      EnvironmentOptions options = small_room();
      options.env = env;
      options.horizon = 7;  // episodes cross rollouts
      const TaskFamily family = TaskFamily::of(options);
      const auto history = Ppo(family, 17, short_settings(2000), 3).learn(terminal);
      ASSERT_TRUE(history);
      EXPECT_EQ(history->steps, 100);
      EXPECT_EQ(history->next_states_are_reset(), !terminal);
      expect_lived(family, 17, *history, terminal);
    }
  }
}

TEST(Ppo, MakesWholeRolloutsUntilTheTotalIsReached) {
  const TaskFamily family = TaskFamily::of(small_room());
  const auto history = Ppo(family, 0, short_settings(2001), 3).learn(false);
  EXPECT_EQ(history->steps, 120);
  EXPECT_EQ(history->actions.size(), 120 * 20);
}

TEST(Ppo, LearnsToReachTheGoal) {
  const TaskFamily family = TaskFamily::of(small_room());
  for (const int64_t task : {0, 8, 21}) {
    const auto history = Ppo(family, task, short_settings(24'000), 5).learn(false);
    EXPECT_GT(history->final_return(), 0.8 * family.best_return(task)) << "task " << task;
    EXPECT_LT(family.random_return(task), 0.4 * family.best_return(task));
  }
}

TEST(Ppo, BeginsWithRandomPlay) {
  const TaskFamily family = TaskFamily::of(small_room());
  CollectionOptions options;
  options.n_stream = 2000;
  options.n_steps = 10;
  options.total_source_timesteps = 20'000;
  const auto history = Ppo(family, 12, options.ppo(Family::kDarkroom), 5).learn(false);
  EXPECT_NEAR(history->final_return(), family.random_return(12), 0.15);
}

TEST(Ppo, IsAFunctionOfTaskAndSeed) {
  const TaskFamily family = TaskFamily::of(small_room());
  const auto actions = [&](int64_t task, uint64_t seed) {
    return Ppo(family, task, short_settings(2000), seed).learn(false)->actions;
  };
  EXPECT_EQ(actions(4, 9), actions(4, 9));
  EXPECT_NE(actions(4, 9), actions(4, 10));
}

TEST(Ppo, StopsBetweenRollouts) {
  const TaskFamily family = TaskFamily::of(small_room());
  int asked = 0;
  EXPECT_FALSE(Ppo(family, 4, short_settings(4000), 9).learn(false, [&asked] { return ++asked == 3; }));
  EXPECT_EQ(asked, 3);
}

TEST(Ppo, DivergenceIsAnErrorThatNamesTheLearningRate) {
  const TaskFamily family = TaskFamily::of(small_room());
  PpoSettings settings = short_settings(8000);
  settings.learning_rate = 1e30;
  try {
    Ppo(family, 17, settings, 3).learn(false);
    FAIL() << "nothing was thrown";
  } catch (const NonFiniteError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("task 17, step "), HasSubstr("after round "),
                                    HasSubstr("probabilities"), HasSubstr("source_lr, which is 1e+30")));
  }
}

TEST(Divergence, ProbabilitiesAndValuesTell) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kLeast = std::numeric_limits<float>::min();
  EXPECT_TRUE(are_sound(std::vector<float>{0.2F, 0.2F, 0.2F, 0.2F, 0.2F}, -3));
  EXPECT_TRUE(are_sound(std::vector<float>{kLeast, 1, kLeast, kLeast, kLeast}, 1e30F));
  EXPECT_FALSE(are_sound(std::vector<float>(5, kLeast), 0)) << "what a kernel makes of NaN";
  EXPECT_FALSE(are_sound(std::vector<float>{0.5F, 0.5F, kNan}, 0));
  EXPECT_FALSE(are_sound(std::vector<float>{0.5F, 0.5F}, kNan));
  EXPECT_FALSE(are_sound(std::vector<float>{0.5F, 0.5F}, std::numeric_limits<float>::infinity()));
}

TEST(Ppo, MarksTheFirstAndTheLastStepOfEachRollout) {
  const TaskFamily family = TaskFamily::of(small_room());
  auto history = Ppo(family, 4, short_settings(1200), 9).learn(false);
  mark_rollouts(*history, 20);
  for (int64_t step = 0; step < history->steps; ++step) {
    const int32_t expected = step % 20 == 0 ? 1 : step % 20 == 19 ? 2 : 0;
    EXPECT_EQ(row(history->compress_markers, step, 20), std::vector<int32_t>(20, expected))
        << "step " << step;
  }
}

}  // namespace
}  // namespace adtrain
