#pragma once

#include <cstdint>
#include <optional>

#include <c10/core/Device.h>

namespace adtrain::testing {

/// Where a test program runs fused blocks, on how much: on a GPU, or emulated on the CPU, where everything is
/// slow.
struct FusedDevice {
  at::Device device;
  int64_t rows, transitions, layers;  ///< of batches and networks
};

/// Empty where there is none. Each program that has fused blocks brings its own.
std::optional<FusedDevice> fused_device();

}  // namespace adtrain::testing
