#pragma once

#include "distributed/Communicator.h"

namespace adtrain {

/// A wish to stop, by signal (INT, TERM, USR1). The handler only sets a flag; the flag is combined over ranks
/// at a step boundary, so that all ranks stop behind the same step. A second INT or TERM ends the process the
/// ordinary way.
class StopRequest {
 public:
  /// Takes over the signals for as long as it lives. One at a time in a process.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  /// Whether any rank was asked to stop. Collective.
  bool agreed(Communicator& communicator) const;
  /// The signal that this process received, 0 for none.
  static int signal_number();
};

}  // namespace adtrain
