#include "environments/PluginFamilies.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "environments/EnvironmentBatch.h"
#include "environments/TaskFamily.h"

namespace adtrain {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// Counts steps in x and pays the action; task i begins at i. Where x leaves the room depends on its size.
class Counter : public Environment {
 public:
  explicit Counter(int32_t first) : first_(first) {}
  Observation reset() override { return {x_ = first_, 0}; }
  Outcome step(int32_t action) override { return {{++x_, 1}, action}; }

 private:
  int32_t first_, x_ = 0;
};

class Counters : public EnvironmentFamily {
 public:
  explicit Counters(int64_t tasks) : tasks_(tasks) {}
  int64_t task_count() const override { return tasks_; }
  std::unique_ptr<Environment> make(int64_t task) const override {
    return std::make_unique<Counter>(static_cast<int32_t>(task));
  }
  double best_return(int64_t /*task*/) const override { return 12; }

 private:
  int64_t tasks_;
};

/// In the one process of this file's tests the families are added once.
EnvironmentOptions options_for(const std::string& name) {
  static const bool added = [] {
    const auto counters = [](const EnvironmentSettings& settings) {
      return std::make_shared<Counters>(settings.grid_size - 5);
    };
    PluginFamilies::add({"counters", "libcounters.so", counters, {.horizon = 3, .env_split_seed = 8}});
    PluginFamilies::add({"nothing", "libnothing.so", [](const auto&) { return nullptr; }, {}});
    return true;
  }();
  EXPECT_TRUE(added);
  EnvironmentOptions options;
  options.env = name;
  return options;
}

TEST(PluginFamilies, AreKnownByNameWithTheirDefaults) {
  const EnvironmentOptions options = options_for("Counters");
  EXPECT_EQ(options.family(), Family::kPlugin);
  EXPECT_EQ(options.family_name(), "counters");
  EXPECT_EQ(options.episode_horizon(), 3);
  EXPECT_EQ(options.split_seed(), 8);
  EXPECT_EQ(options.train_ratio(), 0.9);
  EXPECT_THAT(environment_names(), Contains("counters"));
  const TaskFamily family = TaskFamily::of(options);
  EXPECT_EQ(family.task_count(), 4);
  EXPECT_EQ(family.best_return(2), 12);
  EXPECT_NEAR(family.random_return(1), 3 * 2, 0.3) << "the mean of 1000 episodes of three random actions";
}

TEST(PluginFamilies, StepInLockStepAndBeginAnewAtTheHorizon) {
  EnvironmentBatch batch(TaskFamily::of(options_for("counters")), {2, 0});
  EXPECT_THAT(batch.states(), ElementsAre(2, 0, 0, 0));
  const std::vector<int32_t> actions = {4, 1};
  for (int32_t step = 1; step <= 2; ++step) {
    batch.step(actions);
    EXPECT_THAT(batch.states(), ElementsAre(2 + step, 1, step, 1));
    EXPECT_THAT(batch.rewards(), ElementsAre(4, 1));
    EXPECT_FALSE(batch.done());
  }
  batch.step(actions);
  EXPECT_TRUE(batch.done());
  EXPECT_THAT(batch.next_states(), ElementsAre(5, 1, 3, 1));
  EXPECT_THAT(batch.states(), ElementsAre(2, 0, 0, 0));
}

TEST(PluginFamilies, WhatNoRoomHoldsIsDamage) {
  EnvironmentOptions options = options_for("counters");
  options.grid_size = 6;
  options.horizon = 100;
  EnvironmentBatch batch(TaskFamily::of(options), {0});
  for (int step = 0; step < 5; ++step) batch.step(std::vector<int32_t>{0});
  try {
    batch.step(std::vector<int32_t>{0});
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Task 0 of the plug-in's family counters observed (6, 1)"));
  }
}

TEST(PluginFamilies, AFamilyWithoutTasksIsRefused) {
  EXPECT_THROW(TaskFamily::of(options_for("nothing")), ConfigError);
  EnvironmentOptions small = options_for("counters");
  small.grid_size = 5;
  try {
    TaskFamily::of(small);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("libcounters.so made 0 tasks of 'counters'"));
  }
}

}  // namespace
}  // namespace adtrain
