#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "memory/MemorySplit.h"

namespace adtrain {

/// As the driver's and the guides' figures are shown: decimal.
inline constexpr double kBytesOfGigabyte = 1e9;

inline double in_gigabytes(int64_t bytes) {
  return static_cast<double>(bytes) / kBytesOfGigabyte;
}

/// Bytes of the memory that a rank computes in.
struct MemoryReading {
  int64_t in_use = 0;  ///< by all processes
  int64_t total = 0;
  int64_t available() const { return total - in_use; }
};

/// What the driver reports as in use on a GPU, by all processes, without what libtorch's allocator holds in
/// this one: what grows here was allocated by CUDA itself or by other libraries. 0 on the CPU.
int64_t bytes_outside_allocator(c10::Device device);

/// Measures the memory of one rank's device. On a GPU these are the driver's figures, so other processes
/// count, too, and so does what libtorch's allocator keeps for reuse. On the CPU it is what this process has
/// resident, under a limit. For one thread.
class MemoryMeter {
 public:
  /// `cpu_limit`: the bytes that a CPU rank may have resident. Without it, the rank may take its equal share
  /// of what the host has available now, for `local_ranks` of them.
  MemoryMeter(c10::Device device, std::optional<int64_t> cpu_limit, int64_t local_ranks);

  c10::Device device() const { return device_; }
  /// "NVIDIA H200", or "CPU".
  const std::string& name() const { return name_; }
  MemoryReading now() const;

  /// Gives back what is cached for reuse, and starts a new peak.
  void restart();
  /// Looks at what is in use now, for the peak. libtorch's allocator knows its own peak; what others take
  /// counts as of these moments, of restart() and of peak().
  void sample();
  /// The largest in_use since restart().
  int64_t peak() const;
  /// What is in use now, by parts. Those that the caller knows are given; activations and other are found
  /// out: on a GPU all else that libtorch's allocator holds, and all that is outside it; on the CPU what was
  /// added since restart(), and the rest.
  MemorySplit split(MemorySplit known) const;

 private:
  c10::Device device_;
  std::string name_;
  int64_t cpu_total_ = 0;
  int64_t sampled_ = 0;     ///< the largest of the samples
  int64_t at_restart_ = 0;  ///< in use then
};

}  // namespace adtrain
