#pragma once

#include <optional>

#include <signal.h>

namespace adtrain {

/// A launcher's signal handling. While the object exists, the signals that the launcher passes on to its
/// ranks (INT, TERM, USR1, HUP, TSTP) and the notice of a rank's end (CHLD) are blocked until next() takes
/// them. A signal that was ignored before stays so, as `nohup` requires. To be constructed while the process
/// has one thread: threads that it starts later block the signals as well.
class PassedOnSignals {
 public:
  PassedOnSignals();
  ~PassedOnSignals();
  PassedOnSignals(const PassedOnSignals&) = delete;
  PassedOnSignals& operator=(const PassedOnSignals&) = delete;

  /// The next of these signals; nothing where none arrives within `seconds`.
  std::optional<int> next(double seconds) const;
  /// The signal mask from before.
  const sigset_t& blocked_before() const { return before_; }

 private:
  sigset_t held_back_{}, before_{};
};

}  // namespace adtrain
