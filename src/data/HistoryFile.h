#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>

#include "base/NumberRanges.h"
#include "data/History.h"
#include "data/HistorySettings.h"

namespace adtrain {

class ReaderProcess;

/// The bounds of a history's values.
struct HistoryBounds {
  int64_t grid_size;    ///< coordinates lie in 0 … grid_size − 1
  int64_t num_actions;  ///< actions lie in 0 … num_actions − 1
};

/// Reads a file of learning histories, ours or the Python projects': HDF5, one group a task, named by its
/// number. docs/history-format.md describes the format.
///
/// Every fault of a file is a DataError that names the file, the data set, what was found and what was
/// expected. So is a file that crashes the HDF5 library or makes it use unbounded memory or time: the library
/// runs in a process of its own (ReaderProcess). Several threads may read; reads are serialised.
class HistoryFile {
 public:
  explicit HistoryFile(std::filesystem::path path);
  ~HistoryFile();

  /// The numbers of the tasks that the file holds, one at least.
  const NumberRanges& tasks() const { return tasks_; }
  int64_t steps() const { return steps_; }
  int64_t streams() const { return streams_; }
  /// What the file was collected with; empty in files of other programs and of earlier versions.
  const HistorySettings& settings() const { return settings_; }

  /// The first `steps` steps of the first `streams` streams of a task: throws if the file holds fewer. Checks
  /// every value, and the checksum of every data set that has one.
  History read(int64_t task, int64_t steps, int64_t streams, const HistoryBounds& bounds) const;

 private:
  std::filesystem::path path_;
  std::unique_ptr<ReaderProcess> reader_;
  mutable std::mutex mutex_;  ///< guards the exchange with the reader
  NumberRanges tasks_;
  int64_t steps_ = 0;
  int64_t streams_ = 0;
  HistorySettings settings_;
};

}  // namespace adtrain
