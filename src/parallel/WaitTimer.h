#pragma once

#include <memory>

#include <c10/core/Device.h>

namespace adtrain {

/// Measures how long a device's work is blocked between begin() and end(): on a GPU its current stream, for
/// which the host does not wait; on the CPU the caller. On a GPU both calls may be captured in a CUDA graph;
/// each replay then repeats them. For one thread.
class WaitTimer {
 public:
  explicit WaitTimer(c10::Device device);
  ~WaitTimer();
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;

  void begin();
  void end();
  /// Seconds between the latest begin() and end(); 0 before the first. The caller must have synchronised with
  /// the device.
  double seconds() const;
  /// Mean of those pairs since the last call of this function; 0 where there was none. On a GPU it is the
  /// latest pair, as a replay overwrites the times of the one before.
  double take_mean_seconds();

 private:
  class Clock;
  class HostClock;
  class GpuClock;
  std::unique_ptr<Clock> clock_;
};

}  // namespace adtrain
