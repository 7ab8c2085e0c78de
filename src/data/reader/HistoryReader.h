#pragma once

#include <cstdint>
#include <filesystem>

#include "base/NumberRanges.h"
#include "data/Hdf5.h"
#include "data/History.h"
#include "data/HistorySettings.h"

namespace adtrain {

/// Reads history files through the HDF5 library, in the process that may die of them. The library's errors, a
/// wrong shape or type, and a checksum that differs are DataErrors that name file and data set; the caller
/// checks the values.
class HistoryReader {
 public:
  explicit HistoryReader(std::filesystem::path path);

  /// The groups that are named by a number, one at least; what else a file holds is left alone.
  const NumberRanges& tasks() const { return tasks_; }
  /// Of the first task, and so of all.
  int64_t steps() const { return steps_; }
  int64_t streams() const { return streams_; }

  /// The file's attributes that are one text or one number, as text. Throws where a setting is neither.
  HistorySettings settings() const;

  /// Throws where the optimal_actions of a task, which `read` leaves alone, are damaged.
  void check_optimal_actions(int64_t task) const;

  /// The first `steps` steps of the first `streams` streams of a task. A data set with a checksum is read
  /// whole.
  History read(int64_t task, int64_t steps, int64_t streams) const;

 private:
  std::filesystem::path path_;
  Hdf5Handle file_;
  NumberRanges tasks_;
  int64_t steps_ = 0;
  int64_t streams_ = 0;
};

}  // namespace adtrain
