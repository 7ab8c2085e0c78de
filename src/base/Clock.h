#pragma once

#include <chrono>

namespace adtrain {

/// Seconds since construction or the last restart, by a monotonic clock.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Now::now() - start_).count(); }
  void restart() { start_ = Now::now(); }

 private:
  using Now = std::chrono::steady_clock;
  Now::time_point start_ = Now::now();
};

/// A time at which waiting ends.
class Deadline {
 public:
  explicit Deadline(double seconds) : seconds_(seconds) {}
  bool passed() const { return watch_.seconds() > seconds_; }
  double limit_seconds() const { return seconds_; }
  double seconds_left() const { return seconds_ - watch_.seconds(); }  ///< negative after the deadline

 private:
  Stopwatch watch_;
  double seconds_;
};

/// Seconds since 1970, as log files and launchers use them.
double unix_seconds();

}  // namespace adtrain
