#pragma once

#include <cstdint>
#include <vector>

#include "environments/EnvironmentOptions.h"

namespace adtrain {

/// Which tasks are trained on and which are held out, in the order of the shuffle.
///
/// Equals, task for task, what the Python projects get from
/// `random.seed(env_split_seed); order = list(range(n)); random.shuffle(order)` and cutting at `round(n *
/// ratio)`.
struct TaskSplit {
  std::vector<int64_t> train;
  std::vector<int64_t> test;

  static TaskSplit of(const EnvironmentOptions& options, int64_t task_count);
};

}  // namespace adtrain
