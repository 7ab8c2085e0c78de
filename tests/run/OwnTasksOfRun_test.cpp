#include "run/own/OwnTasksOfRun.h"

#include <cstdlib>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/File.h"
#include "environments/WorkerModules.h"
#include "run/EvaluationWorkers.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::ElementsAre;

/// The points of lessons.py, by numbers, by texts of them, and by names.
constexpr const char* kNumbers = R"(
import lessons


def make_env(task, seed):
    return lessons.Points(lessons.TASKS[int(task)])
)";
constexpr const char* kTexts = "from numbered import make_env\n\nTASKS = ['2', '0', '1']\n";
constexpr const char* kNames = "from lessons import TASKS, make_points as make_env\n";

constexpr const char* kConfiguration = R"(
env: lessons
histories: none.hdf5
observation_space: {type: Box, dtype: float64, shape: [2], low: [-.inf, -.inf], high: [.inf, .inf]}
action_space: {type: Box, dtype: float32, shape: [2], low: [-1, -1], high: [1, 1]}
normalize_observations: true
reward_scale: 5
)";

class OwnTasksOfRunTest : public WorkerTest {
 protected:
  OwnTasksOfRunTest() {
    write_file(folder_.path() / "numbered.py", kNumbers);
    write_file(folder_.path() / "texts.py", kTexts);
    write_file(folder_.path() / "named.py", kNames);
  }
  /// Of a run in environments of this module.
  RunConfig config_of(const std::string& module) {
    const WorkerOptions worker = worker_of(module + ":make_env");
    setenv("PYTHONPATH", (folder_.path().string() + ":" + std::getenv("PYTHONPATH")).c_str(), 1);
    write_file(folder_.path() / "own.yaml", kConfiguration);
    std::vector<std::string> notices;
    RunConfig config = RunConfig::load(folder_.path() / "own.yaml", {}, notices);
    config.worker = worker;
    return config;
  }

  TemporaryFolder folder_;
};

/// A trained, a trained and a held-out task; means and scores are their numbers, and the names are as given.
OwnTasksOfRun tasks_of_run(const std::vector<std::string>& names) {
  std::vector<TaskScale> tasks;
  for (int64_t number = 0; number < 3; ++number) {
    const auto value = static_cast<double>(number);
    TaskScale task{
        names[static_cast<size_t>(number)], number, number < 2, 0.5 + value, 10, {value, 7}, {1, 1}};
    task.random_score = value;
    task.expert_score = 10 + value;
    tasks.push_back(task);
  }
  return OwnTasksOfRun(TaskScaling(tasks));
}

/// The first elements of the means, and the scales of rewards.
std::vector<double> scales_of(const OwnTasksOfRun& run, const RunConfig& config, const WorkerPool& workers,
                              const std::vector<int64_t>& tasks) {
  std::vector<Trial> trials;
  for (const int64_t task : tasks) trials.push_back({task, 0});
  const SpaceScale scale = run.scale(config, workers)(trials);
  std::vector<double> found;
  for (int64_t i = 0; i < std::ssize(tasks); ++i) found.push_back(scale.state_mean[i][0].item<double>());
  for (int64_t i = 0; i < std::ssize(tasks); ++i) found.push_back(scale.reward[i].item<double>());
  return found;
}

std::vector<double> experts_of(const OwnTasksOfRun& run, const RunConfig& config, const WorkerPool& workers,
                               const std::vector<int64_t>& tasks) {
  std::vector<double> found;
  for (const TaskScore& score : run.scores(config, workers, tasks))
    found.push_back(score.expert.value_or(-1) - score.random.value_or(0));
  return found;
}

TEST_F(OwnTasksOfRunTest, WithoutTasksTheyAreKnownByNumber) {
  const RunConfig config = config_of("numbered");
  const std::unique_ptr<WorkerPool> workers = start_workers(config, {});
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"task 0", "task 1", "task 2"}, {"low", "middle", "high"}}) {
    const OwnTasksOfRun run = tasks_of_run(names);
    EXPECT_THAT(run.split(config, *workers).train, ElementsAre(0, 1));
    EXPECT_THAT(run.split(config, *workers).test, ElementsAre(2));
    // The held-out task has its own scale of rewards; the one that no histories are of has the run's.
    EXPECT_THAT(scales_of(run, config, *workers, {1, 0, 2, 8}),
                ElementsAre(1, 0, 0.5, 0.5, 1.5, 0.5, 2.5, 5));
    EXPECT_THAT(experts_of(run, config, *workers, {1, 2, 8}), ElementsAre(10, 10, -1));
  }
}

/// TASKS have them in another order than the histories, which do not name them.
TEST_F(OwnTasksOfRunTest, TasksThatAreNumbersAreThoseThatHistoriesDoNotName) {
  const RunConfig config = config_of("texts");
  const std::unique_ptr<WorkerPool> workers = start_workers(config, {});
  const OwnTasksOfRun run = tasks_of_run({"task 0", "task 1", "task 2"});
  EXPECT_THAT(run.split(config, *workers).train, ElementsAre(1, 2));
  EXPECT_THAT(run.split(config, *workers).test, ElementsAre(0));
  EXPECT_THAT(scales_of(run, config, *workers, {0, 1, 2}), ElementsAre(0.5, 0, 1, 2.5, 0.5, 1.5));
  EXPECT_THAT(experts_of(run, config, *workers, {0, 1, 2}), ElementsAre(10, 10, 10));
}

TEST_F(OwnTasksOfRunTest, NamesAreThoseOfTheHistories) {
  const RunConfig config = config_of("named");
  const std::unique_ptr<WorkerPool> workers = start_workers(config, {});
  const OwnTasksOfRun run = tasks_of_run({"high", "low", "unknown"});
  EXPECT_THAT(run.split(config, *workers).train, ElementsAre(0, 2));
  EXPECT_THAT(run.split(config, *workers).test, ElementsAre(1));
  EXPECT_THAT(scales_of(run, config, *workers, {0, 1, 2}), ElementsAre(1, 0.5, 0, 1.5, 5, 0.5));
  EXPECT_THAT(experts_of(run, config, *workers, {0, 1, 2}), ElementsAre(10, -1, 10));
}

}  // namespace
}  // namespace adtrain
