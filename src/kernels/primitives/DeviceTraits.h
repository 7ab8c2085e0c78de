#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace adtrain::kernels {

/// The properties of a device that decide which of our kernels run on it.
struct DeviceTraits {
  bool is_gpu = false;
  int compute_capability = 0;           ///< of a GPU; 90 means 9.0
  int64_t shared_bytes_of_a_block = 0;  ///< the most shared memory of a thread block on a GPU

  /// Throws EnvironmentError where the GPU cannot be queried. A GPU without an index means the current one.
  static DeviceTraits of(const at::Device& device);
  /// The properties of H100 and H200.
  static constexpr DeviceTraits hopper() { return {true, 90, int64_t{227} * 1024}; }

  /// Whether the kernels of whole blocks and of attention run here. They need all shared memory of a thread
  /// block, those of whole blocks multiplies_by_warpgroups(), too.
  constexpr bool runs_large_kernels() const {
    return runs_small_kernels() && shared_bytes_of_a_block >= hopper().shared_bytes_of_a_block;
  }
  /// Whether the kernels of the embedding and the loss run here. They are compiled for the same GPUs, and
  /// need no more shared memory than all of these have, 99 KiB a thread block.
  constexpr bool runs_small_kernels() const {
    return is_gpu && compute_capability >= hopper().compute_capability;
  }
  /// Whether there are products of warpgroups (wgmma), which later GPUs do not have.
  constexpr bool multiplies_by_warpgroups() const {
    return is_gpu && compute_capability == hopper().compute_capability;
  }
};

}  // namespace adtrain::kernels
