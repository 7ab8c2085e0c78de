#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/NumberRanges.h"
#include "environments/worker/WorkerHello.h"

namespace adtrain {

/// What the file of a task that an earlier call has learnt says of it.
struct FinishedTask {
  std::optional<std::string> name;     ///< nothing where the module had no TASKS
  std::optional<double> final_return;  ///< its expert-score; nothing where none of its episodes ended
};

/// By number.
using FinishedTasks = std::map<int64_t, FinishedTask>;

/// Reads what HistoryFileWriter keeps of `tasks`, which must be finished, until the file `histories` is
/// complete. Throws DataError where a task's is damaged.
FinishedTasks read_finished(const std::filesystem::path& histories, const NumberRanges& tasks);

/// "task 0 was 'low' and is 'high'" for each task that environments by now call otherwise, as their TASKS
/// have been edited. A task without a name is called by its number, so TASKS of numbers call it the same.
std::vector<std::string> renamed(const FinishedTasks& finished, const WorkerHello& hello);

}  // namespace adtrain
