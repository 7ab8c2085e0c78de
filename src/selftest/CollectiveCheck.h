#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/Communicator.h"

namespace adtrain {

/// The measurements of one collective operation over all ranks; the same on every rank.
struct CollectiveFigures {
  int64_t bytes = 0;
  double seconds = 0;               ///< of one operation, on the slowest rank
  std::vector<std::string> faults;  ///< a sentence for each rank with wrong values

  /// Bytes a second of a rank's tensor.
  double algorithm_bandwidth() const { return static_cast<double>(bytes) / seconds; }
  /// Bytes a second over each rank's link, if every byte crosses it as rarely as possible: comparable between
  /// world sizes, and with a link's nominal bandwidth. bytes · 2 (n − 1) / n / seconds.
  double bus_bandwidth(int64_t ranks) const {
    return algorithm_bandwidth() * 2 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  }
};

/// Broadcasts a pattern of about `bytes` bytes from every rank in turn, on the group's device, and compares
/// each element. Not timed. Collective.
CollectiveFigures check_broadcast(Communicator& communicator, int64_t bytes);

/// All-reduces fp32 tensors of `bytes` bytes on the group's device. The first all-reduce has whole numbers
/// that differ by element and rank, and compares each exact sum; the following ones are timed. Needs three
/// times the memory. Collective.
CollectiveFigures check_all_reduce(Communicator& communicator, int64_t bytes);

}  // namespace adtrain
