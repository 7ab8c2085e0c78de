#pragma once

#include <csignal>

#include "collectives/Communicator.h"

namespace adtrain {

/// A request to stop, by signal (INT, TERM, HUP, USR1). The handler only sets a flag. The flag is combined
/// over ranks at a step boundary, so that all ranks stop after the same step. An INT, TERM or HUP that
/// insists (see StopSignals) ends the process as usual. A HUP that is ignored, as under `nohup`, stays so.
///
/// USR1 means only "save and leave". It reaches the ranks of a run at different times: one may still be
/// loading, another may already be leaving. From `expect_usr1` on it ends no process.
class StopRequest {
 public:
  /// Handles the signals while it exists; its destructor restores the previous handlers. Where a rank of
  /// several ends because another has failed, its launcher's TERM must not end it before its last messages
  /// (see HeldTermination). A TERM that was held during the start counts as one that arrives now: ranks reach
  /// this at different times, and all must stop after the same step. At most one per process at a time.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  /// To be called when the process starts: a USR1 that arrives before the first StopRequest counts for it.
  static void expect_usr1();

  /// Whether any rank was asked to stop. Collective.
  bool agreed(Communicator& communicator) const;
  /// The signal that this process received; 0 for none.
  static int signal_number();

 private:
  struct sigaction before_int_ {};
  struct sigaction before_term_ {};
  struct sigaction before_hup_ {};
};

}  // namespace adtrain
