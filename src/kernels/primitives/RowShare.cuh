#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/primitives/RowVectors.cuh"

/// How the threads of a block share rows, in kernels that sum over each row, and those sums.
namespace adtrain::kernels {

/// kLanes threads share a row; each has kVectors of its vectors.
template <int kLanes, int kVectors>
struct RowShare {
  static_assert(kWarp % kLanes == 0 || kLanes % kWarp == 0, "part of a warp, or whole warps");
  static constexpr int kThreads = kLanes <= kWarp ? 128 : kVectors == 1 ? 2 * kLanes : kLanes;  ///< per block
  static constexpr int kGroups = kThreads / kLanes;  ///< rows that a block works on at once

  /// Rows beyond the end have no vectors.
  __device__ RowShare(int64_t row, int64_t rows, int vectors) {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    first = row * vectors + lane;
    count = row < rows ? (vectors - lane + kLanes - 1) / kLanes : 0;
  }

  __device__ bool has(int v) const { return v < count; }
  __device__ int64_t place(int v) const { return first + v * kLanes; }
  __device__ void load(const Vector* matrix, Vector (&to)[kVectors]) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) to[v] = has(v) ? __ldg(matrix + place(v)) : Vector{0, 0, 0, 0};
  }
  /// The same of what kernels ahead have written in a kernel that starts early: behind its wait for them.
  __device__ void load_awaited(const Vector* matrix, Vector (&to)[kVectors]) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) to[v] = has(v) ? __ldcg(matrix + place(v)) : Vector{0, 0, 0, 0};
  }
  __device__ void load(const Dropout& dropout, unsigned (&keep)[kVectors]) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) keep[v] = has(v) ? dropout.kept(place(v)) : 0;
  }

  int64_t first;
  int count;
};

/// Sums each of the values over the lanes that share a row; all of these lanes get the sums. All threads of
/// the block must call this, with `odd` alternating between false and true. A warp that is one call ahead
/// must not overwrite what another warp still reads.
template <class Share, int kLanes, int kCount>
__device__ void sum_over_row(float (&values)[kCount], bool odd) {
#pragma unroll
  for (int distance = kLanes < kWarp ? kLanes / 2 : kWarp / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (float& value : values) value += __shfl_xor_sync(0xffffffffU, value, distance);
  }
  if constexpr (kLanes > kWarp) {
    constexpr int kWarps = kLanes / kWarp;
    __shared__ float of_warps[2][Share::kGroups][kWarps][kCount];
    const int group = static_cast<int>(threadIdx.x) / kLanes,
              warp = static_cast<int>(threadIdx.x) % kLanes / kWarp;
    if (threadIdx.x % kWarp == 0) {
      for (int i = 0; i < kCount; ++i) of_warps[odd][group][warp][i] = values[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = 0;
      for (const auto& of_warp : of_warps[odd][group]) values[i] += of_warp[i];
    }
  }
}

/// Adds the sums that the groups of a block have over their rows, in the order of the groups. Writes them to
/// `to` (stride), with zeros after the width.
template <int kLanes, int kVectors>
__device__ void put_part(const Floats (&sums)[kVectors], int width, int stride, float* to) {
  using Share = RowShare<kLanes, kVectors>;
  __shared__ float of_groups[Share::kGroups][kVectors][kVectorWidth][kLanes];
  __syncthreads();  // all threads have read the previous sums
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      of_groups[threadIdx.x / kLanes][v][i][threadIdx.x % kLanes] = sums[v].at[i];
    }
  }
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < stride; column += Share::kThreads) {
    const int vector = column / kVectorWidth;
    float sum = 0;
    for (int group = 0; column < width && group < Share::kGroups; ++group) {
      sum += of_groups[group][vector / kLanes][column % kVectorWidth][vector % kLanes];
    }
    to[column] = sum;
  }
}

/// How many threads of a backward pass with one vector a lane are resident on a multiprocessor. The number is
/// limited because a thread keeps its sums for three or four parameters in registers.
constexpr int kThreadsAtOnce = 768;

/// How many of its blocks are.
template <int kLanes, int kVectors, int kMostThreads = kThreadsAtOnce>
constexpr int resident_blocks() {
  return (kVectors == 1 ? kMostThreads : 256) / RowShare<kLanes, kVectors>::kThreads;
}

template <int kNumber>
using Constant = std::integral_constant<int, kNumber>;

/// Calls launch(lanes, vectors per lane), both Constants, for rows of this width. In the forward pass a warp
/// waits for others only in very wide rows.
template <class Launch>
void with_forward_share(const MatrixShape& shape, Launch launch) {
  const int vectors = shape.vectors();
  if (vectors <= 8) {
    launch(Constant<8>(), Constant<1>());
  } else if (vectors <= kWarp) {
    launch(Constant<kWarp>(), Constant<1>());
  } else if (vectors <= 2 * kWarp) {
    launch(Constant<kWarp>(), Constant<2>());
  } else if (vectors <= 3 * kWarp) {
    launch(Constant<kWarp>(), Constant<3>());
  } else if (vectors <= 4 * kWarp) {
    launch(Constant<kWarp>(), Constant<4>());
  } else {
    launch(Constant<4 * kWarp>(), Constant<4>());
  }
}

/// In the backward pass a thread has up to three sums for each of its columns. For more than one vector they
/// would not fit in registers.
template <class Launch>
void with_backward_share(const MatrixShape& shape, Launch launch) {
  const int vectors = shape.vectors();
  if (vectors <= 8) {
    launch(Constant<8>(), Constant<1>());
  } else if (vectors <= kWarp) {
    launch(Constant<kWarp>(), Constant<1>());
  } else if (vectors <= 2 * kWarp) {
    launch(Constant<2 * kWarp>(), Constant<1>());
  } else if (vectors <= 3 * kWarp) {
    launch(Constant<3 * kWarp>(), Constant<1>());
  } else if (vectors <= 4 * kWarp) {
    launch(Constant<4 * kWarp>(), Constant<1>());
  } else {
    launch(Constant<4 * kWarp>(), Constant<4>());
  }
}
static_assert(kMaxNormWidth == 4 * kWarp * 4 * kVectorWidth, "the widest shares");

template <class Share>
int64_t blocks_of_rows(const MatrixShape& shape) {
  return (shape.rows + Share::kGroups - 1) / Share::kGroups;
}

/// launch_forward calls launch(a Short, lanes, vectors per lane, blocks, threads of a block) for a kernel's
/// forward pass over the rows. launch_backward does so for a backward pass with `blocks` thread blocks.
template <class Launch>
void launch_forward(const MatrixShape& shape, Launch launch) {
  with_type(shape.type, [&](auto type) {
    with_forward_share(shape, [&](auto lanes, auto vectors) {
      using Share = RowShare<lanes, vectors>;
      launch(type, lanes, vectors, static_cast<unsigned>(blocks_of_rows<Share>(shape)), Share::kThreads);
    });
  });
}
template <class Launch>
void launch_backward(const MatrixShape& shape, int blocks, Launch launch) {
  with_type(shape.type, [&](auto type) {
    with_backward_share(shape, [&](auto lanes, auto vectors) {
      launch(type, lanes, vectors, static_cast<unsigned>(blocks), RowShare<lanes, vectors>::kThreads);
    });
  });
}

/// How many thread blocks a backward pass has.
template <int kMostThreads = kThreadsAtOnce>
int backward_blocks(const MatrixShape& shape, int processors) {
  int blocks = 0;
  with_backward_share(shape, [&](auto lanes, auto vectors) {
    const int at_once = processors * resident_blocks<lanes, vectors, kMostThreads>();
    blocks = static_cast<int>(std::min<int64_t>(blocks_of_rows<RowShare<lanes, vectors>>(shape), at_once));
  });
  return blocks;
}

}  // namespace adtrain::kernels
