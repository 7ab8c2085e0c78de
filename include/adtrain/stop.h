#pragma once

#include <memory>

#include "adtrain/communicator.h"

namespace adtrain {

/// A request to stop: a signal (INT, TERM, HUP or USR1) to any rank, from a user, from a scheduler at its
/// time limit, or because the launcher has ended. While this object lives such a signal only sets a flag; a
/// second INT, TERM or HUP ends the process as usual, and a HUP that is ignored (`nohup`) stays so. A program
/// calls requested() at each step, saves where all ranks agree, and ends with kExitRequeue (error.h).
///
/// A process has one at a time. To be used from the thread of the group.
class StopSignal {
 public:
  StopSignal();
  /// Restores the previous handling of the signals.
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
