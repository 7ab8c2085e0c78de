#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace adtrain {

/// Bytes of the memory that a rank computes in.
struct MemoryReading {
  int64_t in_use = 0;  ///< by all processes
  int64_t total = 0;
  int64_t available() const { return total - in_use; }
};

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
  /// The largest in_use since then.
  int64_t peak() const;

 private:
  c10::Device device_;
  std::string name_;
  int64_t cpu_total_ = 0;
};

/// Whether an exception means that a device, or this host, has no memory left for what was asked: libtorch's
/// own error, the system's, or that of a CUDA library.
bool is_out_of_memory(const std::exception& error);

}  // namespace adtrain
