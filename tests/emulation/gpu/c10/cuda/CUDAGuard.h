#pragma once

#include <c10/core/Device.h>

/// Stands in the place of libtorch's header: there is one device, the CPU.
namespace c10::cuda {

struct CUDAGuard {
  explicit CUDAGuard(Device) {}
};

}  // namespace c10::cuda
