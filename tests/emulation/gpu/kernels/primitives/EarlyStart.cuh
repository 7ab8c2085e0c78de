#pragma once

#include "base/Launch.cuh"

/// Stands in the place of src/kernels/primitives/EarlyStart.cuh: kernels run one after the other.
namespace adtrain::kernels {

inline void await_kernels_ahead() {}
inline void let_next_kernel_start() {}
inline void follow_kernels_ahead() {}

template <class... Parameters, class... Arguments>
void launch_early_in_clusters(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                              int shared_bytes, int cluster, cudaStream_t, const Arguments&... arguments) {
  emulation::launch(
      name, {blocks.x, blocks.y, blocks.z}, threads, shared_bytes, [&] { kernel(arguments...); }, cluster);
}
template <class... Parameters, class... Arguments>
void launch_early(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                  int shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
  gpu::launch(name, kernel, blocks, threads, shared_bytes, stream, arguments...);
}
template <class... Parameters, class... Arguments>
void launch_early_where(bool, const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                        int shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
  gpu::launch(name, kernel, blocks, threads, shared_bytes, stream, arguments...);
}

}  // namespace adtrain::kernels
