#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>

#include "base/SharedBytes.h"
#include "data/HistoryFile.h"
#include "data/HistorySet.h"

namespace adtrain {

/// Reads part of a history file into memory that may be shared by several processes, each of which reads some
/// of the tasks.
class HistorySetReader {
 public:
  /// Opens the file and checks that it holds what is selected. Throws as HistorySet::load does, but for
  /// faults of the transitions.
  HistorySetReader(std::filesystem::path path, HistorySelection selection);

  /// What the transitions take.
  size_t bytes() const;
  /// How many tasks there are: the pieces of the memory.
  size_t tasks() const { return selection_.tasks.size(); }
  /// Reads those tasks that this process fills into `memory`, of bytes() bytes, and calls `on_task` behind
  /// each of them. What it returns is complete once all sharers are done. Throws DataError for faults of the
  /// transitions.
  HistorySet read(
      const SharedBytes& memory, const std::function<void()>& on_task = [] {}) const;

 private:
  std::filesystem::path path_;
  HistorySelection selection_;
  HistoryFile file_;
};

}  // namespace adtrain
