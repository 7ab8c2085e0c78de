#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "collection/CollectionOptions.h"
#include "data/History.h"
#include "environments/TaskFamily.h"

namespace adtrain {

/// How far a collection is, told after every task.
struct CollectionProgress {
  int64_t tasks_done;        ///< in the file, those of earlier calls included
  int64_t tasks;             ///< of the family
  double mean_final_return;  ///< mean return of the last episodes, over the tasks that this call has learnt
  double seconds_left;       ///< at this call's pace
};

/// What a collection tells its caller and asks of it. Both may be empty.
struct CollectionListener {
  /// Called in the thread that called `run`.
  std::function<void(const CollectionProgress&)> progress;
  /// Asked often, by one thread at a time but not always the same one; once it says yes, `run` ends soon and
  /// keeps the finished tasks.
  std::function<bool()> stop;
};

/// Collects the learning histories of all tasks of a family into one file, a task a thread at a time.
/// The result depends on the settings alone, not on the number of threads, nor on stops in between.
class Collector {
 public:
  Collector(const EnvironmentOptions& environment, const CollectionOptions& options);

  /// Collects into `file`, going on where an earlier call stopped. Returns whether the file is complete;
  /// false after a stop. Throws DataError where the file exists already or an earlier call had other
  /// settings.
  bool run(const std::filesystem::path& file, const CollectionListener& listener = {}) const;

 private:
  std::optional<History> learn(int64_t task, const std::function<bool()>& stop) const;

  TaskFamily family_;
  CollectionOptions options_;
  PpoSettings ppo_;
};

}  // namespace adtrain
