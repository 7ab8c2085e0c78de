#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace adtrain {

/// How the kernel let a process run during some time.
struct CpuUse {
  double seconds = 0;
  double on_core = 0;  ///< seconds in which the thread that asks was on a core
  /// Seconds in which a thread was ready to run and had no core: of the thread of this process for which this
  /// is most. Absent where the kernel does not count it.
  std::optional<double> without_core;
  int64_t pages_from_disk = 0;  ///< pages of memory that were not there and had to be read
};

/// The kernel's counters of this process at one moment, from /proc and getrusage.
class CpuTimes {
 public:
  /// Reads a file for each thread of the process: up to a millisecond.
  static CpuTimes now();
  /// What has passed from then to now. Both are to be read by the same thread.
  CpuUse until(const CpuTimes& later) const;

 private:
  double wall_ = 0, on_core_ = 0;           ///< seconds
  std::map<int64_t, double> without_core_;  ///< by thread: seconds
  int64_t pages_from_disk_ = 0;
};

}  // namespace adtrain
