#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/Clock.h"
#include "base/ProcessDescriptor.h"
#include "launch/LaunchContext.h"
#include "launch/LocalRanks.h"

namespace adtrain {

/// The ranks of this launch on this host as they were seen over time: which has gone first, and for how long
/// one has been stopped. For one thread at a time.
class SeenRanks {
 public:
  struct Rank {
    int64_t process = 0;               ///< the last one that was seen; 0 before the first
    ProcessDescriptor descriptor;      ///< of this process
    std::optional<Stopwatch> gone;     ///< since a look first found no process
    std::optional<Stopwatch> stopped;  ///< likewise
  };

  explicit SeenRanks(const LaunchContext& context) : local_(context) {}

  /// Brings everything below up to date. Times begin anew where this process has not looked for two seconds:
  /// it may have been suspended, and others with it.
  void look();
  /// The ranks that the launcher starts here, as far as that is known, and all that were ever seen; by rank.
  const std::map<int64_t, Rank>& ranks() const { return ranks_; }
  /// Those that have no process now, in the order in which this was found: where one that fails takes others
  /// along, it is the first.
  const std::vector<int64_t>& gone() const { return gone_; }
  /// The first that has gone, where one that was seen has had no process for `seconds`. One that was never
  /// seen may not have been started yet, so it counts only where it was missing for as long before that: then
  /// it had ended before this process looked, and has taken the other along.
  std::optional<int64_t> gone_for(double seconds) const;
  /// Descriptors that become readable when a look will find another rank gone.
  std::vector<int> descriptors() const;

 private:
  LocalRanks local_;
  std::map<int64_t, Rank> ranks_;
  std::vector<int64_t> gone_;
  Stopwatch since_look_;
};

}  // namespace adtrain
