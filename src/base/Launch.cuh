#pragma once

#include <string>

#include <cuda_runtime.h>

#include "base/Cuda.h"

/// How a kernel is started; for .cu files.
namespace adtrain::gpu {

/// How many multiprocessors the current GPU has.
inline int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return count;
}

/// Starts `kernel`, called `name` in errors, with as many bytes of dynamic shared memory for each of the
/// thread blocks. Returns at once; throws EnvironmentError where it cannot be launched.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, int shared_bytes,
            cudaStream_t stream, const Arguments&... arguments) {
  const auto checked = [&](cudaError_t result) {
    if (result != cudaSuccess) check(result, (std::string("The launch of ") + name).c_str());
  };
  if (shared_bytes > 0) {
    checked(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  }
  kernel<<<blocks, threads, shared_bytes, stream>>>(arguments...);
  checked(cudaGetLastError());
}

/// The same of thread blocks that wait for each other: all of them run at once, or none is started.
template <class... Parameters, class... Arguments>
void launch_at_once(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                    int shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
  const std::string call = std::string("The launch of ") + name;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        call.c_str());
  cudaLaunchAttribute cooperative = {};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), call.c_str());
}

}  // namespace adtrain::gpu
