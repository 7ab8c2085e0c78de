#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/HistoryFile.h"
#include "data/HistorySettings.h"
#include "data/Transition.h"
#include "environments/TaskFamily.h"

namespace adtrain {

/// The part of a history file that is a data set.
struct HistorySelection {
  std::vector<int64_t> tasks;  ///< groups of the file, in the order in which they become histories
  int64_t steps;               ///< the first `steps` steps of each history
  int64_t streams;             ///< the first `streams` streams of each task
  TaskFamily family;           ///< the tasks' definition, which histories must match
  /// the settings with which the file must have been collected, where it holds any
  HistorySettings settings;
};

/// Learning histories in memory: history h is stream h mod streams of task h ÷ streams, `steps()` transitions
/// in time order. Immutable after loading, so any number of threads may read it.
class HistorySet {
 public:
  /// Reads through HDF5. Throws DataError: file missing, malformed or damaged, collected with other settings,
  /// too few tasks, steps or streams, or transitions that are not the family's (check_by_replay).
  static HistorySet load(const std::filesystem::path& file, const HistorySelection& selection);

  /// Histories of random transitions with rewards from 0 to 1, for tests, benchmarks and self tests.
  static HistorySet random(int64_t histories, int64_t steps, const HistoryBounds& bounds, uint64_t seed);

  /// For histories that are already in memory: `transitions` holds histories × steps entries.
  HistorySet(int64_t steps, std::vector<Transition> transitions);
  /// The same of `count` entries in memory that others may share, with file_checksum().
  HistorySet(int64_t steps, std::shared_ptr<const Transition> first, size_t count, std::string file_checksum)
      : steps_(steps), first_(std::move(first)), count_(count), file_checksum_(std::move(file_checksum)) {}

  int64_t steps() const { return steps_; }
  int64_t histories() const { return static_cast<int64_t>(count_) / steps_; }
  std::span<const Transition> history(int64_t index) const {
    return transitions().subspan(static_cast<size_t>(index * steps_), static_cast<size_t>(steps_));
  }
  std::span<const Transition> transitions() const { return {first_.get(), count_}; }
  /// 16 hexadecimal digits that differ where any value or its place differs: the identity of the training
  /// data. Takes a pass over the transitions.
  std::string digest() const;
  /// The checksum of all tasks of the file that this was loaded from, whatever the selection: 8 hexadecimal
  /// digits, or "" where the file has no checksums.
  const std::string& file_checksum() const { return file_checksum_; }
  int64_t bytes() const { return static_cast<int64_t>(count_ * sizeof(Transition)); }

 private:
  int64_t steps_;
  std::shared_ptr<const Transition> first_;  ///< of `count_`, and the owner of their memory
  size_t count_;
  std::string file_checksum_;
};

}  // namespace adtrain
