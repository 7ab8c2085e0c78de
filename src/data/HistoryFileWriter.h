#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/History.h"
#include "data/HistorySettings.h"

namespace adtrain {

/// What becomes of a history file that exists already.
enum class ExistingHistories { kRefuse, kReplace };

/// Writes a file of learning histories task by task, in any order, such that a stopped or killed collection
/// loses no finished task.
///
/// Until all tasks are there they lie in the folder `path` + ".partial", one small HDF5 file each, flushed
/// and renamed into place, beside the settings that they were made with. `finish` assembles them, renames the
/// result to `path` and removes the folder, so `path` is complete whenever it exists, and a file that is to
/// be replaced stays until then. One task is in memory at a time.
///
/// Thread-safe: tasks may be written from several threads. One process at a time may hold a partial folder.
class HistoryFileWriter {
 public:
  using Settings = HistorySettings;

  /// Starts, or continues what an earlier writer left: finished tasks whose files turn out damaged are
  /// removed, to be made again. Throws DataError where `path` exists already or where the partial folder was
  /// made with other settings (unless what is there is to be replaced), and where another process is at work
  /// on it. `compression` is gzip's level; 0 leaves data sets contiguous.
  HistoryFileWriter(std::filesystem::path path, int64_t tasks, const Settings& settings, int compression = 0,
                    ExistingHistories existing = ExistingHistories::kRefuse);
  ~HistoryFileWriter();
  HistoryFileWriter(const HistoryFileWriter&) = delete;
  HistoryFileWriter& operator=(const HistoryFileWriter&) = delete;

  /// The tasks that are not there yet, ascending.
  std::vector<int64_t> missing() const;
  /// What was wrong with each task's file that an earlier writer left and that was removed.
  const std::vector<std::string>& damages() const { return damages_; }
  /// Rewards are stored as int32: whole numbers. When this returns, the task survives a crash.
  void write(int64_t task, const History& history);
  /// Makes `path`; all tasks must have been written.
  void finish();

 private:
  std::filesystem::path task_file(int64_t task) const;
  void open_folder(ExistingHistories existing);
  void remove_damaged_tasks();
  void check_room() const;

  std::filesystem::path path_;
  std::filesystem::path partial_;
  int64_t tasks_;
  Settings settings_;
  int compression_;
  int lock_ = -1;  ///< descriptor whose lock keeps other processes out
  std::vector<std::string> damages_;
};

}  // namespace adtrain
