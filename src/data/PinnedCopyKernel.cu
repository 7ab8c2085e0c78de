#include "base/Launch.cuh"
#include "data/PinnedCopyKernel.h"

namespace adtrain {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kFewBytes = 32768;

__global__ void __launch_bounds__(kThreads) pinned_copy_kernel(char* to, const char* from, int64_t bytes) {
  constexpr int64_t kWord = sizeof(uint4);
  const int64_t first = kWord * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
  if (first + kWord <= bytes) {
    *reinterpret_cast<uint4*>(to + first) = *reinterpret_cast<const uint4*>(from + first);
  } else {
    for (int64_t i = first; i < bytes; ++i) to[i] = from[i];
  }
}

}  // namespace

void copy_pinned_bytes(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
  if (bytes > kFewBytes) {
    gpu::check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream),
               "cudaMemcpyAsync");
  } else if (bytes > 0) {
    constexpr int64_t kOfBlock = sizeof(uint4) * kThreads;
    gpu::launch("pinned_copy_kernel", pinned_copy_kernel,
                static_cast<unsigned>((bytes + kOfBlock - 1) / kOfBlock), kThreads, 0, stream,
                static_cast<char*>(to), static_cast<const char*>(from), bytes);
  }
}

}  // namespace adtrain
