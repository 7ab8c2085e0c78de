#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/LaunchContext.h"

namespace adtrain {

/// The ranks of this launch on this host, found by their processes' environments. This shows what a rank
/// cannot report itself: that its process has ended or is stopped, however early. For one thread.
class LocalRanks {
 public:
  explicit LocalRanks(const LaunchContext& context);

  struct Sight {
    int64_t process = 0;   ///< its id; 0 where there is none
    bool stopped = false;  ///< by a signal or a debugger
  };
  /// The ranks that have a process now, by rank. Scripts with the same environment may run between a rank and
  /// its launcher: the rank exists while any of these processes does, and is stopped where any of them is.
  std::map<int64_t, Sight> look() const;

  /// The ranks that the launcher starts on this host, as far as that is known. Starting takes a moment, so a
  /// rank without a process need not have failed.
  const std::set<int64_t>& expected() const { return expected_; }

  /// The process that started this rank: the nearest ancestor that is not one of this launch's ranks (scripts
  /// in between count as ranks). Nothing where no launcher is known, or where the ancestor is the system's
  /// first process, which adopts orphans.
  std::optional<int64_t> launcher() const;

 private:
  std::optional<int64_t> rank_of(int64_t process) const;

  int64_t rank_;
  std::string rank_variable_;  ///< "" where the launcher sets none
  /// Variables that identify this launch; "" for unset ones.
  std::map<std::string, std::string> of_all_ranks_;
  std::set<int64_t> expected_;
};

}  // namespace adtrain
