#include <cstdio>
#include <thread>

#include <cuda_runtime.h>

#include "base/Gpu.h"

namespace adtrain {
namespace {

__global__ void write_answer(int* answer) {
  *answer = 42;
}

/// Runs a kernel on the GPU. Returns cudaSuccess where it ran.
cudaError_t run_kernel(int index) {
  int* device_answer = nullptr;
  int answer = 0;
  cudaError_t result = cudaSetDevice(index);
  if (result == cudaSuccess) result = cudaMalloc(&device_answer, sizeof(int));
  if (result == cudaSuccess) {
    write_answer<<<1, 1>>>(device_answer);
    result = cudaGetLastError();
    const cudaError_t copied = cudaMemcpy(&answer, device_answer, sizeof(int), cudaMemcpyDeviceToHost);
    if (result == cudaSuccess) result = copied;
    cudaFree(device_answer);
    if (result == cudaSuccess && answer != 42) result = cudaErrorUnknown;
  }
  return result;
}

/// What Gpu::trouble says of an error.
std::string trouble_of(cudaError_t result) {
  switch (result) {
    case cudaSuccess:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
      return "";  // no code that runs there
    case cudaErrorMemoryAllocation:
      return "out of memory (nvidia-smi shows which processes have it)";
    case cudaErrorDevicesUnavailable:
      return "busy or unavailable (nvidia-smi shows its processes, and whether its compute mode is "
             "exclusive)";
    default:
      return cudaGetErrorString(result);
  }
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

std::string obstacle_of(const Gpu& gpu) {
  if (gpu.runs_our_kernels) return "";
  if (!gpu.trouble.empty()) return "cannot use its " + gpu.name + ", of which CUDA says: " + gpu.trouble;
  const std::string major = std::to_string(gpu.compute_capability / 10),
                    minor = std::to_string(gpu.compute_capability % 10);
  return "has a " + gpu.name + " of compute capability " + major + "." + minor +
         ", for which this build holds no code (build with -DADTRAIN_CUDA_ARCHITECTURES=" + major + minor +
         " added)";
}

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
  if (const cudaError_t result = cudaGetDeviceProperties(&properties, index); result != cudaSuccess) {
    cudaGetLastError();  // not to surface in somebody else's call
    gpu.name = "GPU " + std::to_string(index);
    gpu.trouble = cudaGetErrorString(result);
    return gpu;
  }
  gpu.name = properties.name;
  gpu.uuid = uuid_text(properties.uuid);
  gpu.compute_capability = 10 * properties.major + properties.minor;
  gpu.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  // On a thread of its own, since every thread has its own current device. To set this thread's back to what
  // it was, as a rule GPU 0, would create a context there: half a gigabyte for each rank of the host.
  cudaError_t result = cudaSuccess;
  std::thread probe([&] { result = run_kernel(index); });
  probe.join();
  gpu.runs_our_kernels = result == cudaSuccess;
  gpu.trouble = trouble_of(result);
  return gpu;
}

std::string visible_gpu_uuid(int index) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) return uuid_text(properties.uuid);
  cudaGetLastError();
  return "";
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
