#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "collectives/NodeMemory.h"
#include "data/HistorySet.h"
#include "data/HistorySetReader.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "telemetry/Console.h"

namespace adtrain {

/// The tasks of a training run: those of the split that the history file holds.
struct TrainingTasks {
  std::vector<int64_t> trained;
  std::vector<int64_t> held_out;  ///< empty where no held-out loss is measured
  /// Which of the split's tasks are not trained on, or not measured, as the file lacks them or its histories
  /// earn less than least_final_return: as sentences; "" for none.
  std::string missing;

  /// Throws ConfigError where the split trains on no task, and DataError where there is no such file, where
  /// it was collected with other settings than the configuration's, where it lacks a task that train_tasks
  /// names, where it holds no task of a side of the split that is needed, and where least_final_return leaves
  /// none.
  static TrainingTasks of(const RunConfig& config);
};

/// Reads the histories of some tasks from the file that the configuration names. Throws DataError where there
/// is no such file or it was collected with other settings than the configuration's, and as HistorySetReader
/// does.
HistorySetReader open_histories(const RunConfig& config, const std::vector<int64_t>& tasks, int64_t streams);

/// What the reader reads: the ranks of a machine read some tasks each into memory that is theirs together.
/// Collective. Says on the console how far they are, and why ranks have copies of their own, where they have.
HistorySet read_together(const HistorySetReader& reader, NodeMemory& node, const Ranks& ranks,
                         Console& console);

/// Says which file or folder that is: ranks of a machine for which it is not the same do not share it.
std::string content_of(const std::filesystem::path& path);

/// Identifies a checkpoint's histories: the file's own checksum, which is the same for every split and number
/// of streams; for a file without one, the digest of what was loaded.
std::string identity_of(const HistorySet& histories);

}  // namespace adtrain
