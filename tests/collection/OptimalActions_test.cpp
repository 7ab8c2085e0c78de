#include "collection/OptimalActions.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "data/HistorySamples.h"

namespace adtrain {
namespace {

TaskFamily small_family(const char* env) {
  EnvironmentOptions options;
  options.env = env;
  options.grid_size = 3;
  options.horizon = 12;
  return TaskFamily::of(options);
}

/// The return of an episode in which every action is the best one, by what has happened until then.
double return_of_best_actions(const TaskFamily& family, int64_t number) {
  EnvironmentBatch environment(family, {number});
  History history;
  history.streams = 1;
  double earned = 0;
  for (int64_t step = 0; step < family.horizon(); ++step) {
    history.steps = step + 1;
    history.states.insert(history.states.end(), environment.states().begin(), environment.states().end());
    history.actions.push_back(4);
    history.rewards.push_back(0);
    history.dones.push_back(0);
    environment.step(std::vector<int32_t>{optimal_actions(family.task(number), history).back()});
    history.rewards.back() = static_cast<float>(environment.rewards()[0]);
    earned += environment.rewards()[0];
  }
  return earned;
}

TEST(OptimalActions, EarnTheBestReturnOfEveryTask) {
  for (const char* env : {"darkroom", "darkroompermuted", "darkkeytodoor"}) {
    const TaskFamily family = small_family(env);
    for (int64_t task = 0; task < family.task_count(); ++task) {
      EXPECT_EQ(return_of_best_actions(family, task), family.best_return(task)) << env << " " << task;
    }
  }
}

TEST(OptimalActions, AreOfEachStreamInTheOrderOfItsSteps) {
  const TaskFamily family = small_family("darkkeytodoor");
  constexpr int64_t kTask = 17, kSteps = 30, kStreams = 3;  // episodes end at 12 and 24
  const History history = lived_history(family, kTask, kSteps, kStreams, 5);
  const std::vector<int32_t> actions = optimal_actions(family.task(kTask), history);
  ASSERT_EQ(actions.size(), kSteps * kStreams);
  for (int64_t stream = 0; stream < kStreams; ++stream) {
    History alone = history;
    alone.streams = 1;
    for (int64_t step = 0; step < kSteps; ++step) {
      const auto from = static_cast<size_t>(history.at(step, stream)), to = static_cast<size_t>(step);
      alone.actions[to] = history.actions[from];
      alone.rewards[to] = history.rewards[from];
      alone.dones[to] = history.dones[from];
      alone.states[2 * to] = history.states[2 * from];
      alone.states[2 * to + 1] = history.states[2 * from + 1];
    }
    const std::vector<int32_t> of_one = optimal_actions(family.task(kTask), alone);
    EXPECT_TRUE(
        std::ranges::equal(of_one, std::span(actions).subspan(static_cast<size_t>(stream * kSteps), kSteps)));
    EXPECT_EQ(of_one[12], of_one[0]) << "a new episode begins without the key";
  }
}

TEST(OptimalActions, GoAlongXFirst) {
  const TaskFamily family = small_family("darkroom");
  History history;
  history.steps = 1;
  history.streams = 4;
  history.states = {0, 0, 2, 0, 1, 0, 1, 2};  // the goal of task 5 is (1, 2)
  history.actions = {0, 0, 0, 0};
  history.rewards = {0, 0, 0, 0};
  history.dones = {0, 0, 0, 0};
  EXPECT_EQ(optimal_actions(family.task(5), history), (std::vector<int32_t>{0, 1, 2, 4}));
}

}  // namespace
}  // namespace adtrain
