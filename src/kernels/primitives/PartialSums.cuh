#pragma once

#include <cstdint>

#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/PartialSums.h"

/// How thread blocks add up partial sums, four neighbouring elements (a quad) a thread.
namespace adtrain::kernels::partial_sums {

__device__ inline float4 operator+(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

constexpr int kAhead = 9;  ///< a thread's copies in flight at once

/// Of a quad, every `step`th part from `first` on. `room`: kAhead places of this thread in shared memory,
/// `stride` apart. Loads to registers would not be in flight together: the compiler saves registers.
__device__ inline float4 sum_of_parts(const float4* quad, int first, int step, int count, int64_t quads,
                                      float4* room, int stride) {
  float4 sum = {0, 0, 0, 0};
#pragma unroll 1
  for (; first < count; first += kAhead * step) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int part = first + i * step;
      if (part < count) start_copy(room + i * stride, quad + part * quads);
    }
    copies_arrived();
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i * step < count) sum = sum + room[i * stride];
    }
  }
  return sum;
}

constexpr int bytes_for(int threads) {
  return (1 + kAhead) * threads * static_cast<int>(sizeof(float4));
}

/// Adds up `ahead` at the end of a persistent kernel of one thread block of Threads threads at a place, whose
/// thread blocks have `jobs` jobs in turn. Thread blocks that have one job fewer than others do it while
/// these still work, if they are enough; else all do it. The order of each sum is the same. `memory`:
/// shared, bytes_for(Threads), which no thread uses any more.
template <int Threads>
__device__ void add_parts_ahead(const UnaddedParts& ahead, int jobs, char* memory) {
  constexpr int kQuads = 64, kGroups = Threads / kQuads;  ///< each group adds up parts of its own
  constexpr int kEnough = 12;                             ///< one of so many thread blocks
  if (ahead.parts == nullptr) return;
  const int blocks = static_cast<int>(gridDim.x), busy = jobs % blocks;
  const int first = busy > 0 && kEnough * (blocks - busy) >= blocks ? busy : 0;
  const int share = static_cast<int>(blockIdx.x) - first;
  if (share < 0) return;
  float4* const of_groups = reinterpret_cast<float4*>(memory);  // (kGroups, kQuads), then the threads' rooms
  const int place = static_cast<int>(threadIdx.x) % kQuads, group = static_cast<int>(threadIdx.x) / kQuads;
  const int64_t quads = ahead.size / 4;
  float4* const sums = reinterpret_cast<float4*>(ahead.sums);
#pragma unroll 1
  for (int64_t tile = int64_t{share} * kQuads; tile < quads; tile += int64_t{blocks - first} * kQuads) {
    const int64_t quad = tile + place;
    const bool exists = quad < quads;
    float4 before = {0, 0, 0, 0};
    if (group == 0 && exists) before = sums[quad];
    if (exists) {
      of_groups[threadIdx.x] =
          sum_of_parts(reinterpret_cast<const float4*>(ahead.parts) + quad, group, kGroups, ahead.count,
                       quads, of_groups + Threads + threadIdx.x, Threads);
    }
    __syncthreads();
    if (group == 0 && exists) {
      float4 sum = of_groups[place];
#pragma unroll
      for (int other = 1; other < kGroups; ++other) sum = sum + of_groups[other * kQuads + place];
      sums[quad] = before + sum;
    }
    __syncthreads();
  }
}

}  // namespace adtrain::kernels::partial_sums
