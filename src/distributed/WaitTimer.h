#pragma once

#include <memory>

#include <c10/core/Device.h>

namespace adtrain {

/// Measures how long the work of a device stands still between begin() and end(): on a GPU its current
/// stream, which the host does not wait for, on the CPU the caller. On a GPU both calls may be captured in a
/// CUDA graph and are then made by each of its replays. For one thread.
class WaitTimer {
 public:
  explicit WaitTimer(c10::Device device);
  ~WaitTimer();
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;

  void begin();
  void end();
  /// Between the latest begin() and end(); 0 before the first. The caller has synchronised with the device.
  double seconds() const;

 private:
  class Clock;
  class HostClock;
  class GpuClock;
  std::unique_ptr<Clock> clock_;
};

}  // namespace adtrain
