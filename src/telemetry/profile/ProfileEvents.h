#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace adtrain {

/// What a recorded stretch of time was spent on.
enum class EventKind {
  kKernel,           ///< a kernel on the GPU
  kCollective,       ///< a collective operation: its kernel on the GPU, or a host thread that is in it
  kCollectiveStart,  ///< the start of a collective operation that goes on while the host thread computes
  kCopy,             ///< the GPU copies or fills memory
  kOperator,         ///< an operator of libtorch on the host
  kCall,             ///< a call of CUDA on the host
};

/// Times are nanoseconds since 1970 by the host's clock, also those of a GPU.
struct ProfileEvent {
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  int64_t correlation = 0;  ///< the same at a call of CUDA and at what it has launched; 0 for none
  size_t name = 0;          ///< index into the names
  EventKind kind = EventKind::kOperator;
  bool on_device = false;
  int64_t row = 0;  ///< the stream on a device, the thread on the host

  int64_t end_ns() const { return start_ns + duration_ns; }
};

/// What one rank has recorded.
struct ProfileEvents {
  std::vector<std::string> names;  ///< each once
  std::vector<ProfileEvent> events;
};

/// What the host did from `start_ns` to `end_ns`: an optimizer step, or, where `step` is empty, the work
/// between two steps.
struct HostMark {
  std::optional<int64_t> step;
  int64_t start_ns = 0, end_ns = 0;
};

}  // namespace adtrain
