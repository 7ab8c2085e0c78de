#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collection/CollectionOptions.h"
#include "data/History.h"
#include "data/HistoryFileWriter.h"
#include "environments/TaskFamily.h"
#include "environments/TaskOptions.h"

namespace adtrain {

/// The progress of a collection, reported after every task.
struct CollectionProgress {
  int64_t tasks_done;        ///< in the file, including those of earlier calls
  int64_t tasks;             ///< that the file is to hold
  double mean_final_return;  ///< mean return of the last episodes, over the tasks that this call has learnt
  double seconds_left;       ///< at this call's pace
};

/// A collection's callbacks. Each may be empty.
struct CollectionListener {
  /// Called, before anything is learnt, with each reason for which an earlier call's task is learnt again.
  std::function<void(const std::string& reason)> damage;
  /// Called in the thread that called `run`.
  std::function<void(const CollectionProgress&)> progress;
  /// Called often, by one thread at a time but not always the same one. Once it returns true, `run` ends soon
  /// and keeps the finished tasks.
  std::function<bool()> stop;
};

/// Where tasks are learnt: one per core, or one per multiprocessor of the current GPU. The algorithm is the
/// same; the random numbers, and so the histories, differ.
enum class CollectionDevice { kCpu, kGpu };

/// Collects the learning histories of a family's tasks, all or those that TaskOptions names, into one file,
/// many tasks at a time. The result depends on the settings and the device alone, not on the number of
/// threads, nor on stops in between.
class Collector {
 public:
  Collector(const EnvironmentOptions& environment, const CollectionOptions& options,
            CollectionDevice device = CollectionDevice::kCpu, const TaskOptions& tasks = TaskOptions());

  /// Why the current GPU, which must exist, cannot run this collection; nothing where it can.
  std::optional<std::string> gpu_objection() const;

  /// The size of the file, without compression.
  int64_t file_bytes() const;

  /// Collects into `file`, continuing where an earlier call stopped. Returns whether the file is complete;
  /// false after a stop. Throws DataError where the file exists already or an earlier call had other settings
  /// (with kReplace the file stays until the new one is complete, and a partial collection with other
  /// settings is deleted), and EnvironmentError where the GPU cannot run it.
  bool run(const std::filesystem::path& file, const CollectionListener& listener = {},
           ExistingHistories existing = ExistingHistories::kRefuse) const;

 private:
  /// Called with a finished task's final return, in the thread that called `run`.
  using Report = std::function<void(double final_return)>;

  void learn_on_cpu(const std::vector<int64_t>& tasks, const std::function<bool()>& stop,
                    HistoryFileWriter& writer, const Report& report) const;
  void learn_on_gpu(const std::vector<int64_t>& tasks, const std::function<bool()>& stop,
                    HistoryFileWriter& writer, const Report& report) const;
  double write(int64_t task, History history, HistoryFileWriter& writer) const;

  TaskFamily family_;
  NumberRanges tasks_;
  HistorySettings settings_;
  CollectionOptions options_;
  PpoSettings ppo_;
  CollectionDevice device_;
};

}  // namespace adtrain
