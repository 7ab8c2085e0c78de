#pragma once

#include <algorithm>

#include "base/Clock.h"

namespace adtrain {

/// How long a loop has been running, without the time in which its process was suspended (Ctrl-Z, SIGSTOP, a
/// job that its scheduler has paused). The loop calls look() several times a second. Where two calls are
/// further apart than `kMostBetweenLooks`, the process did not run, and only that much time counts. For one
/// thread.
class RunningTime {
 public:
  static constexpr double kMostBetweenLooks = 1;  ///< seconds

  /// Looks at the clock. Returns the seconds that count since construction.
  double look() {
    gap_ = since_look_.seconds();
    since_look_.restart();
    seconds_ += std::min(gap_, kMostBetweenLooks);
    return seconds_;
  }
  /// The result of the last look().
  double seconds() const { return seconds_; }
  /// All seconds between the last two looks, suspended ones included.
  double gap() const { return gap_; }

 private:
  Stopwatch since_look_;
  double seconds_ = 0;
  double gap_ = 0;
};

/// A deadline that does not advance while the process is suspended. For a loop that checks it several times a
/// second.
class RunningDeadline {
 public:
  explicit RunningDeadline(double seconds) : seconds_(seconds) {}
  bool passed() { return time_.look() > seconds_; }

 private:
  RunningTime time_;
  double seconds_;
};

}  // namespace adtrain
