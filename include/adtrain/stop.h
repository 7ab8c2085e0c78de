#pragma once

#include <memory>

#include "adtrain/communicator.h"

namespace adtrain {

/// A wish to stop: a signal (INT, TERM or USR1) to any rank, by a user, a scheduler whose time is up, or a
/// launcher that is gone. While this object lives such a signal only sets a flag; a second INT or TERM ends
/// the process the ordinary way. A program asks at each step, saves where all ranks agree, and ends with
/// kExitRequeue (error.h).
///
/// One at a time in a process. For the thread of the group.
class StopSignal {
 public:
  StopSignal();
  /// Gives the signals their former meaning back.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// Whether any rank was asked to stop: the same answer on all of them, so that they stop at the same step.
  /// Collective; throws as the operations of ProcessGroup do.
  bool requested(ProcessGroup& group) const;

 private:
  class Handler;
  std::unique_ptr<Handler> handler_;
};

}  // namespace adtrain
