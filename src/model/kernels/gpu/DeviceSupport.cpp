#include "model/kernels/gpu/DeviceSupport.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "base/Cuda.h"

namespace adtrain::kernels {
namespace {

/// Of the current GPU, if `device` names none.
int attribute_of(const at::Device& device, cudaDeviceAttr attribute) {
  int number = device.index(), value = 0;
  if (!device.has_index()) gpu::check(cudaGetDevice(&number), "cudaGetDevice");
  gpu::check(cudaDeviceGetAttribute(&value, attribute, number), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

bool runs_fused_ends(const at::Device& device) {
  return device.is_cuda() && attribute_of(device, cudaDevAttrComputeCapabilityMajor) >= 9;
}

bool runs_row_kernels(const at::Device& device) {
  return device.is_cuda();
}

std::optional<std::string> why_no_fused_kernels(const at::Device& device) {
  constexpr int kSharedBytes = 227 * 1024;  // of a thread block, at most
  if (!device.is_cuda()) return "they are for GPUs";
  if (runs_fused_ends(device) &&
      attribute_of(device, cudaDevAttrMaxSharedMemoryPerBlockOptin) >= kSharedBytes) {
    return std::nullopt;
  }
  return fmt::format("they are for GPUs of compute capability 9.0 and later with {} KiB of shared memory",
                     kSharedBytes / 1024);
}

}  // namespace adtrain::kernels
