#include <cstdio>
#include <thread>

#include <cuda_runtime.h>

#include "base/Gpu.h"

namespace adtrain {
namespace {

__global__ void write_answer(int* answer) {
  *answer = 42;
}

/// Whether a kernel of this build runs on the current device: it does not where the build holds no code for
/// it.
bool kernel_runs() {
  int* device_answer = nullptr;
  int answer = 0;
  if (cudaMalloc(&device_answer, sizeof(int)) != cudaSuccess) return false;
  write_answer<<<1, 1>>>(device_answer);
  const bool copied = cudaMemcpy(&answer, device_answer, sizeof(int), cudaMemcpyDeviceToHost) == cudaSuccess;
  cudaFree(device_answer);
  cudaGetLastError();  // a launch failure must not surface in somebody else's call
  return copied && answer == 42;
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    const bool begins_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    std::snprintf(digits, sizeof digits, "%s%02x", begins_group ? "-" : "",
                  static_cast<unsigned char>(uuid.bytes[i]));
    text += digits;
  }
  return text;
}

}  // namespace

int visible_gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

Gpu visible_gpu(int index) {
  Gpu gpu;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) return gpu;
  gpu.name = properties.name;
  gpu.uuid = uuid_text(properties.uuid);
  gpu.compute_capability = 10 * properties.major + properties.minor;
  gpu.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  // On a thread of its own, since every thread has its own current device. To set this thread's back to what
  // it was, as a rule GPU 0, would create a context there: half a gigabyte for each rank of the host.
  std::thread probe([&] { gpu.runs_our_kernels = cudaSetDevice(index) == cudaSuccess && kernel_runs(); });
  probe.join();
  return gpu;
}

std::string visible_gpu_uuid(int index) {
  cudaDeviceProp properties{};
  return cudaGetDeviceProperties(&properties, index) == cudaSuccess ? uuid_text(properties.uuid) : "";
}

std::vector<Gpu> visible_gpus() {
  std::vector<Gpu> gpus;
  for (int index = 0; index < visible_gpu_count(); ++index) gpus.push_back(visible_gpu(index));
  return gpus;
}

CudaVersions cuda_versions() {
  CudaVersions versions;
  versions.built_against = CUDART_VERSION;
  cudaRuntimeGetVersion(&versions.runtime);
  if (cudaDriverGetVersion(&versions.driver) != cudaSuccess) versions.driver = 0;
  return versions;
}

}  // namespace adtrain
