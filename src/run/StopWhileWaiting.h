#pragma once

#include <csignal>

namespace adtrain {

/// Notices INT, TERM and HUP while a process waits for something before its work, so that it leaves nothing
/// behind. Signals that others handle or ignore stay theirs, but for a TERM that is held during the start of
/// several ranks (see HeldTermination). A StopRequest would take and forget what is meant for the work to
/// come, such as a USR1. At most one per process at a time.
class StopWhileWaiting {
 public:
  StopWhileWaiting();
  /// A signal that has arrived and was not taken has its ordinary effect now.
  ~StopWhileWaiting();
  StopWhileWaiting(const StopWhileWaiting&) = delete;
  StopWhileWaiting& operator=(const StopWhileWaiting&) = delete;

  /// The signal that has arrived, which the caller then acts on; 0 for none.
  static int take();
  /// "SIGTERM", of one that take() returns.
  static const char* name_of(int signal);

 private:
  struct sigaction before_int_ {};
  struct sigaction before_term_ {};
  struct sigaction before_hup_ {};
};

}  // namespace adtrain
