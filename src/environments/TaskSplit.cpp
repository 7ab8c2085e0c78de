#include "environments/TaskSplit.h"

#include <cmath>
#include <numeric>

#include "environments/CPythonRandom.h"

namespace adtrain {

TaskSplit TaskSplit::of(const EnvironmentOptions& options, int64_t task_count, const TaskOptions& chosen) {
  std::vector<int64_t> order(static_cast<size_t>(task_count));
  std::iota(order.begin(), order.end(), 0);
  CPythonRandom(options.split_seed()).shuffle(order);
  const NumberRanges present = chosen.present(task_count);
  const auto named = chosen.train_tasks ? NumberRanges::parse(*chosen.train_tasks) : std::nullopt;
  const int64_t share = trained_share(options, task_count);
  TaskSplit split;
  for (int64_t place = 0; place < task_count; ++place) {
    const int64_t task = order[static_cast<size_t>(place)];
    if (!present.contains(task)) continue;
    const bool trained = named ? named->contains(task) : place < share;
    (trained ? split.train : split.test).push_back(task);
  }
  return split;
}

int64_t TaskSplit::trained_share(const EnvironmentOptions& options, int64_t task_count) {
  // Python rounds halves to even, as nearbyint does in the default rounding mode.
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(task_count) * options.train_ratio()));
}

}  // namespace adtrain
