#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/Device.h>

#include "telemetry/profile/ProfileEvents.h"

namespace adtrain {

/// Records what the calling thread and its backward passes do, by libtorch's Kineto: operators on the host,
/// and for a GPU the calls of CUDA and all that runs on the device, also from replayed CUDA graphs. At most
/// one per process may exist. For one thread.
class EventRecorder {
 public:
  /// Sets up what records; for a GPU this takes up to some seconds.
  explicit EventRecorder(c10::Device device);
  /// Discards what is being recorded.
  ~EventRecorder();
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  void start();
  /// Ends the recording. The caller must have synchronised with the device: work that is still running is
  /// lost.
  ProfileEvents stop();

  /// Now, by the clock of recorded events.
  static int64_t now_ns();

 private:
  struct Settings;  ///< keeps libtorch's profiler out of every other file
  std::unique_ptr<Settings> settings_;
  bool recording_ = false;
};

}  // namespace adtrain
