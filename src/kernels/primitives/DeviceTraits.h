#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace adtrain::kernels {

/// What of a device decides which of our kernels run on it.
struct DeviceTraits {
  bool is_gpu = false;
  int compute_capability = 0;           ///< of a GPU: 90 for 9.0
  int64_t shared_bytes_of_a_block = 0;  ///< of a GPU, at most

  /// Throws EnvironmentError where the GPU cannot be asked. A GPU without a number is the current one.
  static DeviceTraits of(const at::Device& device);
  /// What H100 and H200 have.
  static constexpr DeviceTraits hopper() { return {true, 90, int64_t{227} * 1024}; }

  /// Whether the kernels of whole blocks and of attention run: they take a thread block's whole shared
  /// memory.
  constexpr bool runs_large_kernels() const {
    return runs_small_kernels() && shared_bytes_of_a_block >= hopper().shared_bytes_of_a_block;
  }
  /// Whether those of the embedding and the loss do: they are compiled for the same GPUs, and need little
  /// memory.
  constexpr bool runs_small_kernels() const {
    return is_gpu && compute_capability >= hopper().compute_capability;
  }
};

}  // namespace adtrain::kernels
