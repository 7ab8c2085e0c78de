#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collection/CollectionOptions.h"
#include "collection/CollectionProgress.h"
#include "data/History.h"
#include "data/HistoryFileWriter.h"
#include "environments/TaskFamily.h"
#include "environments/TaskOptions.h"

namespace adtrain {

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
  /// settings is deleted), NonFiniteError where the source algorithm diverged, and EnvironmentError where the
  /// GPU cannot run it.
  bool run(const std::filesystem::path& file, const CollectionListener& listener = {},
           ExistingHistories existing = ExistingHistories::kRefuse) const;

 private:
  using Report = CollectionReport;

  void learn_on_cpu(const std::vector<int64_t>& tasks, const std::function<bool()>& stop,
                    HistoryFileWriter& writer, const Report& report) const;
  void learn_on_gpu(const std::vector<int64_t>& tasks, const std::function<bool()>& stop,
                    HistoryFileWriter& writer, const Report& report) const;
  /// `policies`: the histories of each of the task's policies, the first streams of it at least.
  double write(int64_t task, std::vector<History> policies, HistoryFileWriter& writer) const;

  TaskFamily family_;
  NumberRanges tasks_;
  HistorySettings settings_;
  CollectionOptions options_;
  PpoSettings ppo_;
  int64_t compression_;
  CollectionDevice device_;
};

}  // namespace adtrain
