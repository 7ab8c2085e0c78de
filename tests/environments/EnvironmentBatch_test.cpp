#include "environments/EnvironmentBatch.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "base/Random.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

/// One environment, written the slow and plain way, as the rules are told.
class PlainEnvironment {
 public:
  PlainEnvironment(const std::string& env, int64_t grid, int64_t horizon, int64_t task)
      : env_(env), grid_(static_cast<int32_t>(grid)), horizon_(horizon), task_(static_cast<int32_t>(task)) {
    reset();
  }

  void reset() {
    x = y = env_ == "darkroompermuted" ? 0 : grid_ / 2;
    steps_ = 0;
    has_key_ = finished_ = false;
  }

  int32_t step(int32_t action) {
    if (env_ == "darkroompermuted") {
      std::array<int32_t, 5> permutation = {0, 1, 2, 3, 4};
      for (int32_t i = 0; i < task_; ++i) std::next_permutation(permutation.begin(), permutation.end());
      action = permutation[static_cast<size_t>(action)];
    }
    if (action == 0) x = std::min(x + 1, grid_ - 1);
    if (action == 1) x = std::max(x - 1, 0);
    if (action == 2) y = std::min(y + 1, grid_ - 1);
    if (action == 3) y = std::max(y - 1, 0);
    ++steps_;
    if (env_ == "darkroom") return x == task_ / grid_ && y == task_ % grid_;
    if (env_ == "darkroompermuted") return x == grid_ - 1 && y == grid_ - 1;
    const int32_t goal = task_ % (grid_ * grid_), key = task_ / (grid_ * grid_);
    if (has_key_) {
      if (finished_ || x * grid_ + y != goal) return 0;
      finished_ = true;
      return 1;
    }
    has_key_ = x * grid_ + y == key;
    return has_key_;
  }

  bool done() const { return steps_ == horizon_; }

  int32_t x, y;

 private:
  std::string env_;
  int32_t grid_;
  int64_t horizon_;
  int32_t task_;
  int64_t steps_;
  bool has_key_, finished_;
};

void compare_with_plain(const char* env, RandomStream& random) {
  SCOPED_TRACE(env);
  EnvironmentOptions options;
  options.env = env;
  options.grid_size = 2 + random.below(4);
  options.horizon = 1 + random.below(60);
  const TaskFamily family = TaskFamily::of(options);
  std::vector<int64_t> tasks;
  std::vector<PlainEnvironment> plain;
  for (int i = 0; i < 150; ++i) {
    tasks.push_back(random.below(static_cast<uint32_t>(family.task_count())));
    plain.emplace_back(env, options.grid_size, *options.horizon, tasks.back());
  }

  EnvironmentBatch batch(family, tasks);
  ASSERT_EQ(batch.size(), 150);
  std::vector<int32_t> actions(tasks.size());
  for (int step = 0; step < 200; ++step) {
    if (step == 130) {  // in the middle of an episode
      batch.reset();
      for (PlainEnvironment& environment : plain) environment.reset();
    }
    for (int32_t& action : actions) action = static_cast<int32_t>(random.below(5));
    batch.step(actions);
    for (size_t i = 0; i < plain.size(); ++i) {
      ASSERT_EQ(batch.rewards()[i], plain[i].step(actions[i])) << "step " << step;
      ASSERT_EQ(batch.next_states()[2 * i], plain[i].x);
      ASSERT_EQ(batch.next_states()[2 * i + 1], plain[i].y);
      ASSERT_EQ(batch.done(), plain[i].done());
      if (plain[i].done()) plain[i].reset();
      ASSERT_EQ(batch.states()[2 * i], plain[i].x);
      ASSERT_EQ(batch.states()[2 * i + 1], plain[i].y);
    }
  }
}

TEST(EnvironmentBatch, MovesAndPaysAsThePlainRulesSay) {
  RandomStream random(fresh_seed());
  for (int round = 0; round < 5; ++round) {
    for (const char* env : {"darkroom", "darkroompermuted", "darkkeytodoor"}) compare_with_plain(env, random);
  }
}

TEST(EnvironmentBatch, AKeyOnTheGoalPaysTwiceOnlyOverTwoSteps) {
  EnvironmentOptions options;
  options.env = "darkkeytodoor";
  EnvironmentBatch batch(TaskFamily::of(options),
                         {(4 * 9 + 4) * 81 + 4 * 9 + 4});  // both in the middle, where it starts
  const std::vector<int32_t> stay = {4};
  std::vector<int32_t> paid;
  for (int step = 0; step < 4; ++step) {
    batch.step(stay);
    paid.push_back(batch.rewards()[0]);
  }
  EXPECT_EQ(paid, (std::vector<int32_t>{1, 1, 0, 0}));
}

}  // namespace
}  // namespace adtrain
