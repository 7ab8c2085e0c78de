#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/History.h"

namespace adtrain {

/// Writes a file of learning histories task by task, in any order, such that a stopped or killed collection
/// loses no finished task.
///
/// Until all tasks are there they lie in the folder `path` + ".partial", one small HDF5 file each, flushed
/// and renamed into place, beside the settings that they were made with. `finish` assembles them, renames the
/// result to `path` and removes the folder, so `path` is complete whenever it exists. One task is in memory
/// at a time.
///
/// Thread-safe: tasks may be written from several threads. One process at a time may hold a partial folder.
class HistoryFileWriter {
 public:
  /// Whatever shapes the content, name and value as text: a collection continues only under equal settings.
  using Settings = std::map<std::string, std::string>;

  /// Starts, or continues what an earlier writer left. Throws DataError where `path` exists already, where
  /// the partial folder was made with other settings, or where another process is at work on it.
  /// `compression` is gzip's level; 0 leaves data sets contiguous.
  HistoryFileWriter(std::filesystem::path path, int64_t tasks, const Settings& settings, int compression = 0);
  ~HistoryFileWriter();
  HistoryFileWriter(const HistoryFileWriter&) = delete;
  HistoryFileWriter& operator=(const HistoryFileWriter&) = delete;

  /// The tasks that are not there yet, ascending.
  std::vector<int64_t> missing() const;
  /// Rewards are stored as int32: whole numbers. When this returns, the task survives a crash.
  void write(int64_t task, const History& history);
  /// Makes `path`; all tasks must have been written.
  void finish();

 private:
  std::filesystem::path task_file(int64_t task) const;

  std::filesystem::path path_;
  std::filesystem::path partial_;
  int64_t tasks_;
  int compression_;
  int lock_ = -1;  ///< descriptor whose lock keeps other processes out
};

}  // namespace adtrain
