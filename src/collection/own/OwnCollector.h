#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/NumberRanges.h"
#include "collection/CollectionOptions.h"
#include "collection/CollectionProgress.h"
#include "collection/own/FinishedTasks.h"
#include "collection/own/OwnPpo.h"
#include "data/HistoryFileWriter.h"
#include "data/HistorySettings.h"
#include "environments/TaskOptions.h"
#include "environments/worker/WorkerHello.h"
#include "environments/worker/WorkerOptions.h"

namespace adtrain {

/// Collects the learning histories of users' own tasks into one file of any space: the tasks of the worker's
/// module that TaskOptions names, several at a time, each in a thread that has env_workers worker processes
/// of its own. The result depends on the settings and the environments alone, not on the numbers of threads
/// and workers, nor on stops in between. Collector is the same for families.
class OwnCollector {
 public:
  /// `hello` is what a worker says of the environments. Throws ConfigError where `tasks` names others than
  /// there are, and where the spaces cannot be learnt in.
  OwnCollector(const EnvironmentOptions& environment, const CollectionOptions& options,
               const WorkerOptions& workers, const WorkerHello& hello, const TaskOptions& tasks);

  /// Numbers of the module's TASKS; without TASKS those that TaskOptions names, or one task, 0. Throws
  /// ConfigError where `tasks` names others than there are.
  static NumberRanges tasks_of(const WorkerHello& hello, const TaskOptions& tasks,
                               const std::string& env_worker);
  const NumberRanges& tasks() const { return tasks_; }
  /// The size of the file, without compression.
  int64_t file_bytes() const;
  /// Tasks that are learnt at the same time.
  int64_t tasks_at_once() const;

  /// As Collector::run. Throws WorkerFault where environments fail: finished tasks are kept. Throws DataError
  /// where an earlier call has finished tasks which the environments call otherwise by now, unless they are
  /// to be replaced.
  bool run(const std::filesystem::path& file, const CollectionListener& listener = {},
           ExistingHistories existing = ExistingHistories::kRefuse) const;

 private:
  FinishedTasks finished_before(const std::filesystem::path& file, const HistoryFileWriter& writer,
                                ExistingHistories existing) const;
  std::unique_ptr<WorkerPool> start_workers(const PlayNotices::Say& say) const;
  std::optional<OwnPpo::Learnt> learn_task(int64_t task, WorkerPool& workers,
                                           const std::function<bool()>& stop) const;

  NumberRanges tasks_;
  CollectionOptions options_;
  WorkerOptions workers_;
  WorkerHello hello_;
  OwnPpoSettings learning_;
  HistorySettings settings_;
  int64_t compression_;
};

}  // namespace adtrain
