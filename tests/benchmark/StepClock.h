#pragma once

#include <vector>

#include <c10/core/Device.h>
#include <c10/cuda/CUDAEvent.h>

#include "base/Clock.h"

namespace adtrain {

/// Marks at the boundaries of steps. On a GPU they are events on the current stream, nobody waits for them,
/// and what the GPU idles between two steps counts. On the CPU they are readings of the host's clock.
class StepClock {
 public:
  explicit StepClock(at::Device device) : on_gpu_(device.is_cuda()) {}

  void mark();
  /// Between each mark and the next. Waits for the last.
  std::vector<double> milliseconds() const;

 private:
  bool on_gpu_;
  std::vector<c10::cuda::CUDAEvent> events_;
  Stopwatch watch_;
  std::vector<double> readings_;  ///< in seconds
};

/// The value below or at which lies this share of the values (0 < share ≤ 1), by nearest rank.
double quantile(std::vector<double> values, double share);

}  // namespace adtrain
