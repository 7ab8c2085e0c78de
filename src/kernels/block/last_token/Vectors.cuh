#pragma once

#include <cstdint>

#include "kernels/block/BlockTensors.h"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// What the forward pass computes on the CUDA cores: all sums are in fp32, and each thread has one token.
namespace adtrain::kernels::last_token {

constexpr int kThreads = kMostTokens;  ///< per sequence
constexpr int kWarps = kThreads / kWarp;
constexpr int kGroups = 2;  ///< sequences that a thread block works on at once
constexpr int kBlockThreads = kGroups * kThreads;

/// The stride between rows of a matrix in shared memory. With it neighbouring rows have no bank conflicts.
template <int Columns>
constexpr int kStride = Columns + 8;

/// A thread's position in the group that works on its sequence.
template <int Width>
class ThreadOfGroup {
 protected:
  /// A barrier for the group's threads only.
  __device__ void barrier() const { group_barrier(1 + group_, kThreads); }
  /// A quad of threads computes one output of a matrix, and the quad's first thread writes it.
  __device__ bool is_output() const { return thread_ < 4 * Width; }
  __device__ int output() const { return thread_ / 4; }
  __device__ bool leads() const { return thread_ % 4 == 0; }

  int group_ = threadIdx.x / kThreads;
  int thread_ = threadIdx.x % kThreads;
};

/// Starts to copy a matrix (rows, Columns). This thread is number `thread` of `threads` threads.
template <int Columns>
__device__ void start_copy_rows(Bf16* to, const Bf16* from, int rows, int thread, int threads) {
  constexpr int kChunks = Columns / 8;
  for (int chunk = thread; chunk < rows * kChunks; chunk += threads) {
    start_copy(to + chunk / kChunks * kStride<Columns> + 8 * (chunk % kChunks), from + int64_t{8} * chunk);
  }
}

/// Eight neighbouring elements.
struct Eight {
  float value[8];

  __device__ explicit Eight(const Bf16* from) {
    const uint4 chunk = *reinterpret_cast<const uint4*>(from);
    const uint32_t pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpacked(pairs[i]);
      value[2 * i] = pair.x;
      value[2 * i + 1] = pair.y;
    }
  }
  __device__ explicit Eight(const float* from) {
    const float4 low = *reinterpret_cast<const float4*>(from),
                 high = *reinterpret_cast<const float4*>(from + 4);
    const float both[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] = both[i];
  }
};

/// sum + Σ left · right.
__device__ inline float plus_product(float sum, const Eight& left, const Eight& right) {
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = fmaf(left.value[i], right.value[i], sum);
  return sum;
}

/// The product of the first `Count` elements of a matrix's row and of a vector, both in shared memory.
template <int Count>
__device__ float product(const Bf16* row, const float* vector) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Count; i += 8) sum = plus_product(sum, Eight(row + i), Eight(vector + i));
  return sum;
}

/// A row of the matrix (…, Columns) times the vector, computed by the four threads of a quad together.
template <int Columns>
__device__ float quad_product(const Bf16* matrix, int row, const float* vector) {
  constexpr int kShare = Columns / 4;
  const int first = threadIdx.x % 4 * kShare;
  return quad_sum(product<kShare>(matrix + row * kStride<Columns> + first, vector + first));
}

/// A column of the matrix (Rows, Columns) times the vector, computed likewise.
template <int Rows, int Columns>
__device__ float quad_column_product(const Bf16* matrix, int column, const float* vector) {
  float sum = 0;
#pragma unroll
  for (int row = threadIdx.x % 4; row < Rows; row += 4) {
    sum = fmaf(__bfloat162float(matrix[row * kStride<Columns> + column]), vector[row], sum);
  }
  return quad_sum(sum);
}

/// Σ vector[row] · matrix[row][column] over the `HeadSize` rows of a head from `first_row` on.
template <int HeadSize, int Columns>
__device__ float head_column_product(const Bf16* matrix, int first_row, int column, const float* vector) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < HeadSize; ++i) {
    sum = fmaf(__bfloat162float(matrix[(first_row + i) * kStride<Columns> + column]), vector[first_row + i],
               sum);
  }
  return sum;
}

/// Σ vector[i] · bias[i] over a head's elements.
template <int HeadSize>
__device__ float head_product(const Bf16* bias, const float* vector) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < HeadSize; ++i) sum = fmaf(__bfloat162float(bias[i]), vector[i], sum);
  return sum;
}

/// Sums of x over a sequence's tokens, with `Sums` different weights per token. All threads of the sequence
/// compute them in two steps, with a barrier between.
template <int Width, int Sums>
struct Pool {
  static constexpr int kAtOnce = Sums < 4 ? Sums : 4;        ///< sums per warp
  static constexpr int kShares = kWarps / (Sums / kAtOnce);  ///< groups of warps that divide the tokens
  static constexpr int kLanes = Width / 2;                   ///< per token, each with two columns
  static constexpr int kSide = kWarp / kLanes;               ///< tokens that a warp processes side by side

  struct alignas(kAtOnce * sizeof(float)) Weights {
    float value[kAtOnce];
  };

  float of_share[kShares][kSide][Sums][Width];

  /// Adds this thread's share. `weights` (tokens, Sums) is in shared memory.
  __device__ void add(const Bf16* x, const float* weights, int first, int tokens, int thread) {
    const int warp = thread / kWarp, share = warp % kShares, first_sum = warp / kShares * kAtOnce;
    const int side = thread % kWarp / kLanes, column = 2 * (thread % kLanes);
    float sums[kAtOnce][2] = {};
#pragma unroll 4
    for (int token = first + share * kSide + side; token < tokens; token += kShares * kSide) {
      const float2 pair = unpacked(*reinterpret_cast<const uint32_t*>(x + token * kStride<Width> + column));
      const Weights own = *reinterpret_cast<const Weights*>(weights + token * Sums + first_sum);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        sums[k][0] = fmaf(own.value[k], pair.x, sums[k][0]);
        sums[k][1] = fmaf(own.value[k], pair.y, sums[k][1]);
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      float* to = &of_share[share][side][first_sum + k][column];
      to[0] = sums[k][0];
      to[1] = sums[k][1];
    }
  }

  __device__ float total(int sum, int column) const {
    float all = 0;
    for (int share = 0; share < kShares; ++share) {
#pragma unroll
      for (int side = 0; side < kSide; ++side) all += of_share[share][side][sum][column];
    }
    return all;
  }
};

}  // namespace adtrain::kernels::last_token
