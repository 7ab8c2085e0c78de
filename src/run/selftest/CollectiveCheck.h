#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "distributed/Communicator.h"

namespace adtrain {

/// What all ranks together saw of one collective operation; the same on every rank.
struct CollectiveFigures {
  int64_t bytes = 0;
  double seconds = 0;               ///< of one operation, on the slowest rank
  std::vector<std::string> faults;  ///< a sentence for each rank that got wrong values

  /// Bytes a second of a rank's tensor.
  double algorithm_bandwidth() const { return static_cast<double>(bytes) / seconds; }
  /// Bytes a second that each rank's link carries, if every byte crosses it as rarely as it can: comparable
  /// between rank counts, and with a link's own figure. bytes · 2 (n − 1) / n / seconds.
  double bus_bandwidth(int64_t ranks) const {
    return algorithm_bandwidth() * 2 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  }
};

/// Broadcasts a pattern of about so many bytes from every rank in turn, on the group's device, and compares
/// each element. Not timed. Collective.
CollectiveFigures check_broadcast(Communicator& communicator, int64_t bytes);

/// Sums fp32 tensors of so many bytes over the ranks, on the group's device: once with whole numbers that
/// differ from element to element and from rank to rank, each sum being exact and compared, and then some
/// times against the clock. Needs three times the memory. Collective.
CollectiveFigures check_all_reduce(Communicator& communicator, int64_t bytes);

}  // namespace adtrain
