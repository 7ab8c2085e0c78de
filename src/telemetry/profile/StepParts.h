#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "telemetry/profile/ProfileEvents.h"

namespace adtrain {

/// Where the time of a step went, in nanoseconds. Every instant is in one part, so they sum to the step.
///
/// On a GPU, in the order in which an instant is claimed: a kernel computes (`computing`; `overlapped` where
/// a collective operation runs at that time), a collective operation runs alone, memory is copied, nothing
/// runs. On the CPU an operator computes, unless its thread is in a call of a collective operation
/// (communicating). It overlaps from the start of the gradients' first all-reduce to the end of their last.
/// What is between operators is idle.
struct StepParts {
  int64_t computing = 0;      ///< and not communicating
  int64_t overlapped = 0;     ///< computing and communicating
  int64_t communicating = 0;  ///< and not computing
  int64_t copying = 0;        ///< and neither of them
  int64_t idle = 0;

  int64_t total() const { return computing + overlapped + communicating + copying + idle; }
  /// Of the time of communication, that in which the rank also computes; 0 where it does not communicate.
  double overlapped_share() const;
  StepParts& operator+=(const StepParts& other);
};

/// The time of a mark of the host, for the host and the GPU: it ends when both are done with what the mark
/// has begun, which is when the next one begins.
struct StepWindow {
  std::optional<int64_t> step;  ///< empty: between two steps
  int64_t start_ns = 0, end_ns = 0;
  StepParts parts;
};

/// The windows of marks that follow each other without gaps.
std::vector<StepWindow> windows_of(const ProfileEvents& recorded, const std::vector<HostMark>& marks);

/// The window that holds this instant; null where none does. Windows are in order.
const StepWindow* window_at(const std::vector<StepWindow>& windows, int64_t ns);

}  // namespace adtrain
