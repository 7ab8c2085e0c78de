#include "model/FusedDevice.h"
#include "model/kernels/gpu/DeviceSupport.h"

namespace adtrain {

/// Instead of the product's own: emulated kernels run here.
std::optional<std::string> kernels::why_no_fused_kernels(const at::Device& device) {
  return device.is_cpu() ? std::nullopt : std::optional<std::string>("the emulator is a CPU");
}

bool kernels::runs_fused_ends(const at::Device& device) {
  return device.is_cpu();
}

bool kernels::runs_row_kernels(const at::Device& device) {
  return device.is_cpu();
}

std::optional<testing::FusedDevice> testing::fused_device() {
  return FusedDevice{.device = at::kCPU, .rows = 3, .transitions = 18, .layers = 2};
}

}  // namespace adtrain
