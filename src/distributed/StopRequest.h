#pragma once

#include <csignal>

#include "distributed/Communicator.h"

namespace adtrain {

/// A wish to stop, by signal (INT, TERM, USR1). The handler only sets a flag; the flag is combined over ranks
/// at a step boundary, so that all ranks stop behind the same step. A second INT or TERM ends the process the
/// ordinary way.
///
/// USR1 says nothing but "save and leave", and comes to the ranks of a run at different times: too early for
/// one that still loads, too late for one that leaves already. From `expect_usr1` on it ends no process.
class StopRequest {
 public:
  /// Takes over the signals for as long as it lives; then they mean what they meant before: where a rank of
  /// several ends because another has failed, its launcher's TERM must not come before its last words (see
  /// HeldTermination). One at a time in a process.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  /// To be called when the process starts: a USR1 that comes before the first StopRequest counts for it.
  static void expect_usr1();

  /// Whether any rank was asked to stop. Collective.
  bool agreed(Communicator& communicator) const;
  /// The signal that this process received, 0 for none.
  static int signal_number();

 private:
  struct sigaction before_int_ {};
  struct sigaction before_term_ {};
};

}  // namespace adtrain
