#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "collection/Collector.h"
#include "data/HistoryFile.h"
#include "run/Histories.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

/// Nine tasks, all but one of which are trained on, in a folder that has their histories.
RunConfig small_run(const TemporaryFolder& folder) {
  RunConfig config;
  config.environment.grid_size = 3;
  config.environment.horizon = 8;
  config.collection.n_stream = 10;
  config.collection.total_source_timesteps = 8'000;
  config.collection.source_lr = 1e-3;
  config.collection.n_epochs = 10;
  config.data.traj_dir = folder.path().string();
  config.data.train_source_timesteps = 780;
  config.data.train_n_stream = 7;
  config.training.eval_interval = 0;
  EXPECT_TRUE(Collector(config.environment, config.collection).run(config.history_file()));
  return config;
}

/// Of a task's first 780 steps and 7 streams, the ten episodes that end from step 702 on.
double earned_at_the_end(const RunConfig& config, int64_t task) {
  const HistoryFile file(config.history_file());
  const History history = file.read(task, file.steps(), file.streams(), {.grid_size = 3, .num_actions = 5});
  double earned = 0;
  for (int64_t step = 696; step < 776; ++step) {
    for (int64_t stream = 0; stream < 7; ++stream) earned += history.rewards[history.at(step, stream)];
  }
  return earned / 7 / 10;
}

TEST(TrainingTasks, AreThoseThatTheSourceHasLearnt) {
  const TemporaryFolder folder;
  RunConfig config = small_run(folder);
  const std::vector<int64_t> all = TrainingTasks::of(config).trained;
  ASSERT_EQ(all.size(), 8U);
  std::vector<double> earned;
  for (const int64_t task : all) earned.push_back(earned_at_the_end(config, task));
  std::vector<double> ascending = earned;
  std::ranges::sort(ascending);
  ASSERT_LT(ascending[2], ascending[3]);
  config.data.least_final_return = (ascending[2] + ascending[3]) / 2;
  std::vector<int64_t> expected;
  for (size_t i = 0; i < all.size(); ++i) {
    if (earned[i] > *config.data.least_final_return) expected.push_back(all[i]);
  }
  const TrainingTasks kept = TrainingTasks::of(config);
  EXPECT_EQ(kept.trained, expected) << "five of them, in the split's order";
  EXPECT_THAT(kept.missing, HasSubstr("training has the 5 of 8 tasks whose histories earn at least"));

  config.data.least_final_return = 9;
  try {
    TrainingTasks::of(config);
    FAIL() << "nothing was thrown";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("the best one earns {:.2f}", ascending.back())));
  }
}

/// The last tenth of 40 steps is half an episode.
TEST(TrainingTasks, NoEpisodeIsCut) {
  const TemporaryFolder folder;
  RunConfig config = small_run(folder);
  config.data.train_source_timesteps = 40;
  config.data.train_n_stream = 10;
  const std::vector<int64_t> all = TrainingTasks::of(config).trained;
  double most = 0;
  const HistoryFile file(config.history_file());
  for (const int64_t task : all) {
    most = std::max(most, file.read(task, 40, 10, {.grid_size = 3, .num_actions = 5}).final_return());
  }
  config.data.least_final_return = most;
  EXPECT_FALSE(TrainingTasks::of(config).trained.empty());
  config.data.least_final_return = most + 0.01;
  EXPECT_THROW(TrainingTasks::of(config), DataError);
}

/// What a configuration of these lines complains of.
std::string complaint(const std::vector<std::string>& lines) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "run.yaml", "env: darkroom\n");
  std::vector<std::string> notices;
  try {
    RunConfig::load(folder.path() / "run.yaml", lines, notices);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainingTasks, EpisodesAreBorrowedWhereTasksDifferInRewardsAlone) {
  EXPECT_EQ(complaint({"borrowed_episodes=0.5"}), "");
  EXPECT_EQ(complaint({"borrowed_episodes=0.5", "env=darkkeytodoor", "horizon=50"}), "");
  EXPECT_THAT(complaint({"borrowed_episodes=0.5", "env=darkroompermuted"}),
              HasSubstr("do not differ in their rewards alone"));
  EXPECT_THAT(complaint({"borrowed_episodes=0.5", "use_compressed_context=true"}),
              HasSubstr("whose samples are regions"));
  EXPECT_THAT(complaint({"borrowed_episodes=0.5", "n_transit=621"}), HasSubstr("more than 31 episodes"));
  EXPECT_THAT(complaint({"eval_forget_unrewarded=2", "use_compressed_context=true"}),
              HasSubstr("eval_forget_unrewarded"));
  EXPECT_THAT(complaint({"eval_forget_unrewarded=2", "eval_context=rolling"}),
              HasSubstr("the contexts of all tasks have one length"));
}

TEST(TrainingTasks, NetworksPlanWhereTheyHaveLearntTheEnvironment) {
  EXPECT_EQ(complaint({"planning_horizon=9", "dynamics=true"}), "");
  EXPECT_THAT(complaint({"planning_horizon=9"}), HasSubstr("without dynamics: true"));
  const auto of_planner = [](const std::string& setting) {
    return complaint({"planning_horizon=9", "dynamics=true", setting});
  };
  EXPECT_THAT(of_planner("n_transit=9"), HasSubstr("expected at most 8"));
  EXPECT_THAT(of_planner("eval_context=rolling"), HasSubstr("planning_horizon: found 9 with eval_context"));
  EXPECT_THAT(of_planner("load_in_8bit=true"), HasSubstr("planning_horizon: found 9 with load_in_8bit"));
  EXPECT_THAT(of_planner("env_worker=my_envs:make_env"),
              HasSubstr("planning_horizon: found 9 with env_worker"));
}

}  // namespace
}  // namespace adtrain
