#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/formats/HistorySource.h"

namespace adtrain {

/// What the histories of one task came to. Means are over episodes that end in a part of each history; NaN
/// where none does.
struct TaskProgress {
  static constexpr size_t kParts = 50;  ///< of a history, equally long

  size_t task = 0;  ///< its place among the source's
  int64_t steps = 0;
  int64_t episodes = 0;
  int64_t episode_steps = 0;           ///< of all whole episodes together
  std::array<double, kParts> curve{};  ///< mean return by part
  double first_tenth = 0, last_tenth = 0;
  /// Where NaN or infinities are: one place for each column of a history at most.
  std::vector<std::string> not_finite;

  /// Whether episodes of the last tenth return no more than those of the first.
  bool stands_still() const { return last_tenth <= first_tenth; }
};

/// Reads rewards and episodes' ends of some tasks' histories, and observations that are real numbers, with
/// as many threads as this process has cores. `listen` is called now and then, by the calling thread, with
/// the steps that were read. Memory is bounded. Throws DataError where the data are damaged.
std::vector<TaskProgress> learning_progress(const HistorySource& source, const std::vector<size_t>& tasks,
                                            const std::function<void(int64_t steps)>& listen);

/// Mean and standard deviation over those tasks that have a value.
struct MeanOverTasks {
  double mean, deviation;
  int64_t tasks;

  static MeanOverTasks of(const std::vector<TaskProgress>& tasks,
                          const std::function<double(const TaskProgress& task)>& value);
};

}  // namespace adtrain
