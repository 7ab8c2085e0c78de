#pragma once

#include <cstdint>
#include <filesystem>

#include "data/History.h"

namespace adtrain {

/// What the values of a history may be.
struct HistoryBounds {
  int64_t grid_size;    ///< coordinates lie in 0 … grid_size − 1
  int64_t num_actions;  ///< actions lie in 0 … num_actions − 1
};

/// Reads a file of learning histories, ours or the Python projects': HDF5, one group a task, "0" … "n−1".
/// docs/history-format.md describes the format.
///
/// Everything that is wrong with a file is a DataError that names the file, the data set, what was found and
/// what was expected. Reads may come from several threads; HDF5 itself works on one at a time.
class HistoryFile {
 public:
  explicit HistoryFile(std::filesystem::path path);

  int64_t tasks() const { return tasks_; }
  int64_t steps() const { return steps_; }
  int64_t streams() const { return streams_; }

  /// The first `steps` steps of the first `streams` streams of a task: throws if the file holds fewer. Checks
  /// every value.
  History read(int64_t task, int64_t steps, int64_t streams, const HistoryBounds& bounds) const;

 private:
  std::filesystem::path path_;
  int64_t tasks_ = 0;
  int64_t steps_ = 0;
  int64_t streams_ = 0;
};

}  // namespace adtrain
