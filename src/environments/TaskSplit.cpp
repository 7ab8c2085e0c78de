#include "environments/TaskSplit.h"

#include <cmath>
#include <numeric>

#include "environments/CPythonRandom.h"

namespace adtrain {

TaskSplit TaskSplit::of(const EnvironmentOptions& options, int64_t task_count) {
  std::vector<int64_t> order(static_cast<size_t>(task_count));
  std::iota(order.begin(), order.end(), 0);
  CPythonRandom(options.split_seed()).shuffle(order);
  // Python rounds halves to even, as nearbyint does in the default rounding mode.
  const auto trained =
      static_cast<int64_t>(std::nearbyint(static_cast<double>(task_count) * options.train_ratio()));
  const auto cut = order.begin() + trained;
  return {{order.begin(), cut}, {cut, order.end()}};
}

}  // namespace adtrain
