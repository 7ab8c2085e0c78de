#include "kernels/primitives/DeviceTraits.h"

#include <cuda_runtime.h>

#include "base/Cuda.h"

namespace adtrain::kernels {
namespace {

int attribute_of(int device, cudaDeviceAttr attribute) {
  int value = 0;
  gpu::check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

DeviceTraits DeviceTraits::of(const at::Device& device) {
  if (!device.is_cuda()) return {};
  int number = device.index();
  if (!device.has_index()) gpu::check(cudaGetDevice(&number), "cudaGetDevice");
  return {.is_gpu = true,
          .compute_capability = 10 * attribute_of(number, cudaDevAttrComputeCapabilityMajor) +
                                attribute_of(number, cudaDevAttrComputeCapabilityMinor),
          .shared_bytes_of_a_block = attribute_of(number, cudaDevAttrMaxSharedMemoryPerBlockOptin)};
}

}  // namespace adtrain::kernels
