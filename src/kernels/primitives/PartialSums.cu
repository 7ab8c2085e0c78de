#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/PartialSums.cuh"
#include "kernels/primitives/PartialSums.h"

namespace adtrain::kernels {
namespace {

constexpr int kWarp = 32, kWarps = 8;
constexpr int kRoomBytes = partial_sums::kAhead * kWarps * kWarp * static_cast<int>(sizeof(float4));

/// How many lanes that are neighbours in a warp have neighbouring elements, four each: as many as a whole
/// line of memory, unless a large GPU would then have more multiprocessors than thread blocks.
constexpr int kOfLine = 16, kOfShortSums = 4, kManyBlocks = 128;

using partial_sums::operator+;

/// The sum of the lane at distance `apart`.
__device__ float4 of_other_lane(float4 sum, int apart) {
  constexpr unsigned kAllLanes = 0xffffffffu;
  const auto other = [&](float value) { return __shfl_xor_sync(kAllLanes, value, apart); };
  return {other(sum.x), other(sum.y), other(sum.z), other(sum.w)};
}

template <int kLanes>
__global__ void __launch_bounds__(kWarps* kWarp)
    add_parts_kernel(const float4* parts, int count, int64_t quads, float4* sums) {
  constexpr int kGroups = kWarps * (kWarp / kLanes);  // each adds up parts of its own; many loads in flight
  __shared__ float4 of_warps[kWarps][kLanes];
  float4* const rooms = reinterpret_cast<float4*>(dynamic_shared_memory());  // (kAhead, threads)
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes, warp = threadIdx.x / kWarp;
  const int64_t quad = int64_t{blockIdx.x} * kLanes + lane;
  let_next_kernel_start();  // it may read weights, which were complete before the kernel ahead began its work
  await_kernels_ahead();
  const bool adds = group == 0 && quad < quads;
  float4 before = {0, 0, 0, 0};
  if (adds) before = sums[quad];
  float4 sum = {0, 0, 0, 0};
  if (quad < quads) {
    sum = partial_sums::sum_of_parts(parts + quad, group, kGroups, count, quads, rooms + threadIdx.x,
                                     kWarps * kWarp);
  }
  for (int apart = kLanes; apart < kWarp; apart *= 2) sum = sum + of_other_lane(sum, apart);
  if (threadIdx.x % kWarp < kLanes) of_warps[warp][lane] = sum;
  __syncthreads();
  if (!adds) return;
  for (int other = 1; other < kWarps; ++other) sum = sum + of_warps[other][lane];
  sums[quad] = before + sum;
}

}  // namespace

void add_parts(const float* parts, int count, int64_t size, float* sums, cudaStream_t stream) {
  const int64_t quads = size / 4;
  const bool is_short = quads < kManyBlocks * kOfLine;
  const int lanes = is_short ? kOfShortSums : kOfLine;
  launch_early("add_parts_kernel", is_short ? add_parts_kernel<kOfShortSums> : add_parts_kernel<kOfLine>,
               static_cast<unsigned>((quads + lanes - 1) / lanes), kWarps * kWarp, kRoomBytes, stream,
               reinterpret_cast<const float4*>(parts), count, quads, reinterpret_cast<float4*>(sums));
}

}  // namespace adtrain::kernels
