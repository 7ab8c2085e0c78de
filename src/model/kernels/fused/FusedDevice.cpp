#include "model/kernels/fused/FusedDevice.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "base/Cuda.h"

namespace adtrain::kernels {

std::optional<std::string> why_no_fused_kernels(const at::Device& device) {
  constexpr int kSharedBytes = 227 * 1024;  // of a thread block, at most
  if (!device.is_cuda()) return "they are for GPUs";
  int capability = 0, shared_bytes = 0;
  gpu::check(cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device.index()),
             "cudaDeviceGetAttribute");
  gpu::check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()),
             "cudaDeviceGetAttribute");
  if (capability >= 9 && shared_bytes >= kSharedBytes) return std::nullopt;
  return fmt::format("they are for GPUs of compute capability 9.0 and later with {} KiB of shared memory",
                     kSharedBytes / 1024);
}

}  // namespace adtrain::kernels
