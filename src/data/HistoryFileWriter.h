#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/NumberRanges.h"
#include "data/History.h"
#include "data/HistorySettings.h"

namespace adtrain {

struct RecordedTask;

/// What happens to an existing history file.
enum class ExistingHistories { kRefuse, kReplace };

/// What a history file holds: the grids' transitions (version 1, docs/history-format.md), or columns of any
/// space, streams first (version 2, docs/history-formats.md).
enum class HistoryVersion { kGrid, kAnySpace };

/// Writes a file of learning histories task by task, in any order, such that a stopped or killed collection
/// loses no finished task.
///
/// Until all tasks are written they are in the folder `path` + ".partial", one small HDF5 file each, flushed
/// and renamed into place, beside the settings that they were made with. `finish` assembles them, renames the
/// result to `path` and removes the folder. So `path` is complete whenever it exists, and a file to be
/// replaced stays until then. One task is in memory at a time.
///
/// Thread-safe: tasks may be written from several threads. One process at a time may hold a partial folder.
class HistoryFileWriter {
 public:
  using Settings = HistorySettings;

  /// Starts, or continues an earlier writer's partial folder: damaged files of finished tasks are removed, to
  /// be made again. Throws DataError where `path` exists already or where the partial folder was made with
  /// other settings (unless it is to be replaced), and where another process holds the folder. `compression`
  /// is gzip's level; 0 leaves data sets contiguous. `tasks` are all that the file is to hold. `settings` of
  /// version 2 contain the spaces, as the attributes observation-space and action-space.
  HistoryFileWriter(std::filesystem::path path, NumberRanges tasks, const Settings& settings,
                    int compression = 0, ExistingHistories existing = ExistingHistories::kRefuse,
                    HistoryVersion version = HistoryVersion::kGrid);
  ~HistoryFileWriter();
  HistoryFileWriter(const HistoryFileWriter&) = delete;
  HistoryFileWriter& operator=(const HistoryFileWriter&) = delete;

  /// The tasks that are not written yet, ascending.
  std::vector<int64_t> missing() const;
  /// For each removed task file of an earlier writer: what was wrong with it.
  const std::vector<std::string>& damages() const { return damages_; }
  /// Writes a task. Rewards must be whole numbers: they are stored as int32. `optimal_actions`, (streams,
  /// steps), are left out where they are empty. When this returns, the task survives a crash.
  void write(int64_t task, const History& history, const std::vector<int32_t>& optimal_actions = {});
  /// The same of version 2.
  void write(int64_t task, const RecordedTask& recorded);
  /// Makes `path`; all tasks must have been written.
  void finish();
  /// Where a task that was written for the file `path` is until that is complete.
  static std::filesystem::path task_file(const std::filesystem::path& path, int64_t task);

 private:
  std::filesystem::path task_file(int64_t task) const { return task_file(path_, task); }
  void open_folder(ExistingHistories existing);
  void remove_damaged_tasks();
  void check_room() const;
  void write_image(int64_t task, const std::string& image);

  std::filesystem::path path_;
  std::filesystem::path partial_;
  NumberRanges tasks_;
  Settings settings_;
  int compression_;
  HistoryVersion version_;
  int lock_ = -1;  ///< descriptor whose lock keeps other processes out
  std::vector<std::string> damages_;
};

}  // namespace adtrain
