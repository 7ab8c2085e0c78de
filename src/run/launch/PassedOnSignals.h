#pragma once

#include <optional>

#include <signal.h>

namespace adtrain {

/// Makes this process a launcher in respect of signals: for as long as the object lives, those that it passes
/// on to its ranks (INT, TERM, USR1, HUP, TSTP) and the news of a rank's end (CHLD) are held back until they
/// are asked for. A signal that was ignored before stays so, as `nohup` wants it. For the one thread that the
/// process has at that time: threads that it starts later hold them back as well.
class PassedOnSignals {
 public:
  PassedOnSignals();
  ~PassedOnSignals();
  PassedOnSignals(const PassedOnSignals&) = delete;
  PassedOnSignals& operator=(const PassedOnSignals&) = delete;

  /// The next of them, or nothing within `seconds`.
  std::optional<int> next(double seconds) const;
  /// What was blocked before.
  const sigset_t& blocked_before() const { return before_; }

 private:
  sigset_t held_back_{}, before_{};
};

}  // namespace adtrain
