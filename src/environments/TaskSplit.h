#pragma once

#include <cstdint>
#include <vector>

#include "environments/EnvironmentOptions.h"
#include "environments/TaskOptions.h"

namespace adtrain {

/// Which tasks are trained on and which are held out, in the order of the shuffle.
///
/// Equals, task for task, what the Python projects get from
/// `random.seed(env_split_seed); order = list(range(n)); random.shuffle(order)` and cutting at `round(n *
/// ratio)`. Tasks that there are not, by the TaskOptions, are left out of both sides after that; with
/// `train_tasks` those are the one side, and all others the other.
struct TaskSplit {
  std::vector<int64_t> train;
  std::vector<int64_t> test;

  static TaskSplit of(const EnvironmentOptions& options, int64_t task_count, const TaskOptions& chosen);
  /// How many of `task_count` tasks the ratio trains on.
  static int64_t trained_share(const EnvironmentOptions& options, int64_t task_count);
};

}  // namespace adtrain
