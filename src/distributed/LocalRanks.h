#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "distributed/LaunchContext.h"

namespace adtrain {

/// The ranks of this launch on this host, as their processes' environments tell. It shows of a rank what the
/// rank cannot say itself: that its process has ended, or is stopped, however early. For one thread.
class LocalRanks {
 public:
  explicit LocalRanks(const LaunchContext& context);

  struct Sight {
    int64_t process = 0;   ///< its id; 0 where there is none
    bool stopped = false;  ///< by a signal or a debugger
  };
  /// Those that have a process now, by rank. Between a rank and its launcher there may be scripts with the
  /// same environment: the rank is there while any of these processes is, and is stopped where any is.
  std::map<int64_t, Sight> look() const;

  /// The ranks that the launcher starts on this host, as far as that is known. Starting takes a moment, so
  /// one that has no process need not have failed.
  const std::set<int64_t>& expected() const { return expected_; }

  /// What has started this rank: the nearest ancestor that is none of this launch's ranks, as scripts in
  /// between are. Nothing where no launcher is known, and where it is the system's first process, which
  /// adopts whatever has lost its parent.
  std::optional<int64_t> launcher() const;

 private:
  std::optional<int64_t> rank_of(int64_t process) const;

  int64_t rank_;
  std::string rank_variable_;                        ///< "" where the launcher sets none
  std::map<std::string, std::string> of_all_ranks_;  ///< variables of this launch alone; "" for unset ones
  std::set<int64_t> expected_;
};

}  // namespace adtrain
