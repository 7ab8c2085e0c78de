#pragma once

#include <map>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include "base/Cuda.h"
#include "base/Launch.cuh"

/// Kernels that start before the kernel ahead of them on the stream has ended ("programmatic dependent
/// launch"), on GPUs of compute capability 9.0 and later: what they do first needs nothing of that kernel.
/// CUDA graphs keep this. Code for older GPUs starts after it. Like the instructions, it has a counterpart in
/// tests/emulation/.
namespace adtrain::kernels {

/// Waits until all kernels ahead on the stream have ended and their stores are visible. Before it, a kernel
/// may read only what was complete before they were launched, and store only where none of them is reading.
__device__ inline void await_kernels_ahead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel, if it is one of these, start once all thread blocks have come here or ended. Any
/// kernel may call it that writes nothing which the next one reads before its wait; before Hopper it does
/// nothing.
__device__ inline void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Both, in this order, for a kernel in a row of such kernels. Before it a kernel may read what was complete
/// when the last kernel ahead that comes here, or starts after all others, began its work: weights, which
/// none of the kernels between writes.
__device__ inline void follow_kernels_ahead() {
  await_kernels_ahead();
  let_next_kernel_start();
}

/// Whether the kernel's code for the current GPU waits for the kernels ahead. Code for older GPUs, which
/// newer ones compile, does not. Each thread asks once, because the answer takes the driver microseconds.
inline bool starts_early(const void* kernel) {
  constexpr int kHopper = 90;
  static thread_local std::map<std::pair<int, const void*>, bool> known;
  int device = 0;
  gpu::check(cudaGetDevice(&device), "cudaGetDevice");
  const auto [place, is_new] = known.try_emplace({device, kernel}, false);
  if (is_new) {
    cudaFuncAttributes attributes = {};
    gpu::check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
    place->second = attributes.ptxVersion >= kHopper;
  }
  return place->second;
}

/// gpu::launch() of a kernel that calls await_kernels_ahead(). `cluster` neighbouring thread blocks, 8 at
/// most, run at once and can read each other's shared memory; it divides the number of blocks.
template <class... Parameters, class... Arguments>
void launch_early_in_clusters(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                              int shared_bytes, int cluster, cudaStream_t stream,
                              const Arguments&... arguments) {
  const auto checked = [&](cudaError_t result) {
    if (result != cudaSuccess) gpu::check(result, (std::string("The launch of ") + name).c_str());
  };
  if (shared_bytes > 0) {
    checked(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed =
      starts_early(reinterpret_cast<const void*>(kernel)) ? 1 : 0;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(cluster);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t launch = {};
  launch.gridDim = blocks;
  launch.blockDim = threads;
  launch.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  launch.stream = stream;
  launch.attrs = attributes;
  launch.numAttrs = cluster > 1 ? 2 : 1;
  checked(cudaLaunchKernelEx(&launch, kernel, arguments...));
}
/// The same without clusters.
template <class... Parameters, class... Arguments>
void launch_early(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                  int shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
  launch_early_in_clusters(name, kernel, blocks, threads, shared_bytes, 1, stream, arguments...);
}
/// The same of a kernel that may start early in some of its calls alone; in others by gpu::launch().
template <class... Parameters, class... Arguments>
void launch_early_where(bool may, const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                        int shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
  may ? launch_early(name, kernel, blocks, threads, shared_bytes, stream, arguments...)
      : gpu::launch(name, kernel, blocks, threads, shared_bytes, stream, arguments...);
}

}  // namespace adtrain::kernels
