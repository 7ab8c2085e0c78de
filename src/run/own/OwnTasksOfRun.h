#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/TaskScaling.h"
#include "environments/TaskSplit.h"
#include "environments/worker/WorkerPool.h"
#include "evaluation/TaskScores.h"
#include "evaluation/Trial.h"
#include "evaluation/spaces/SpaceContext.h"
#include "run/RunConfig.h"

namespace adtrain {

/// What a worker calls the task of this number; without TASKS the number.
std::string name_of_task(const WorkerPool& workers, int64_t task);

/// What training has written of own tasks, for evaluations in a worker's environments: which it saw, and by
/// what their numbers were scaled. Immutable.
class OwnTasksOfRun {
 public:
  /// Reads the run's tasks.json. Throws CheckpointError where there is none, and DataError where it is
  /// damaged.
  explicit OwnTasksOfRun(const RunFolder& run);
  /// Those of a run that is being trained.
  explicit OwnTasksOfRun(TaskScaling tasks) : tasks_(std::move(tasks)) {}

  /// All of them.
  const TaskScaling& scaling() const { return tasks_; }
  /// Of the worker's TASKS those that training saw, by their names (TaskScaling::find), and the others;
  /// without TASKS the numbers of the histories' tasks.
  TaskSplit split(const RunConfig& config, const WorkerPool& workers) const;
  /// What eval_tasks means with that split. Throws ConfigError where there are none of these.
  std::vector<int64_t> evaluated(const RunConfig& config, const WorkerPool& workers) const;
  /// What the run's histories say of these tasks' scores.
  std::vector<TaskScore> scores(const RunConfig& config, const WorkerPool& workers,
                                const std::vector<int64_t>& tasks) const;
  /// By what the numbers of learners are scaled. Borrows `workers`.
  std::function<SpaceScale(std::span<const Trial>)> scale(const RunConfig& config,
                                                          const WorkerPool& workers) const;

 private:
  /// The worker's task of this number: by its name in TASKS, without TASKS by the number. Null where it is
  /// not there.
  const TaskScale* find(const WorkerPool& workers, int64_t task, const std::string& group) const;

  TaskScaling tasks_;
};

}  // namespace adtrain
