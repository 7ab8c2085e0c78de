#include "kernels/FusedDevice.h"

#include "base/Gpu.h"

namespace adtrain::testing {

std::optional<FusedDevice> fused_device() {
  if (visible_gpu_count() == 0) return std::nullopt;
  return FusedDevice{.device = at::Device(at::kCUDA, 0), .rows = 9, .transitions = 37, .layers = 3};
}

}  // namespace adtrain::testing
