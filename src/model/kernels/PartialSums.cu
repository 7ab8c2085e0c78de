#include "base/Launch.cuh"
#include "model/kernels/PartialSums.h"

namespace adtrain::kernels {
namespace {

constexpr int kLanes = 32;   ///< each with four neighbouring elements
constexpr int kGroups = 16;  ///< each with every sixteenth part, so that enough loads are under way at once

__device__ float4 operator+(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

__global__ void __launch_bounds__(kLanes* kGroups)
    add_parts_kernel(const float4* parts, int count, int64_t quads, float4* sums) {
  __shared__ float4 of_groups[kGroups][kLanes];
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  const int64_t quad = int64_t{blockIdx.x} * kLanes + lane;
  float4 sum = {0, 0, 0, 0};
  if (quad < quads) {
#pragma unroll 8
    for (int part = group; part < count; part += kGroups) sum = sum + __ldcs(parts + part * quads + quad);
  }
  of_groups[group][lane] = sum;
  __syncthreads();
  if (group != 0 || quad >= quads) return;
  for (int other = 1; other < kGroups; ++other) sum = sum + of_groups[other][lane];
  sums[quad] = sums[quad] + sum;
}

}  // namespace

void add_parts(const float* parts, int count, int64_t size, float* sums, cudaStream_t stream) {
  const int64_t quads = size / 4;
  const auto blocks = static_cast<unsigned>((quads + kLanes - 1) / kLanes);
  gpu::launch("add_parts_kernel", add_parts_kernel, blocks, kLanes * kGroups, 0, stream,
              reinterpret_cast<const float4*>(parts), count, quads, reinterpret_cast<float4*>(sums));
}

}  // namespace adtrain::kernels
