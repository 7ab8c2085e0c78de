#pragma once

#include "kernels/primitives/RowVectors.cuh"

/// For kernels in which a thread has one vector of each of its rows, which are a fixed step apart; see
/// column_parts().
namespace adtrain::kernels {

static_assert(kColumnVectors == kWarp);

/// The first row of a thread and the step to its next row.
struct RowsOfThread {
  int64_t first = int64_t{blockIdx.y} * kColumnWarps + threadIdx.y;
  int64_t step = int64_t{gridDim.y} * kColumnWarps;
};

/// For all rows of a thread: calls load(k, row) for the next kAhead of them, k from 0, then use(k, row) for
/// the same ones. So loads of that many rows are in flight at once, into arrays of kAhead elements.
template <int kAhead, class Load, class Use>
__device__ __forceinline__ void for_rows_of_thread(int64_t rows, Load load, Use use) {
  const auto [first, step] = RowsOfThread();
  for (int64_t row = first; row < rows; row += kAhead * step) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (row + k * step >= rows) break;
      load(k, row + k * step);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (row + k * step >= rows) break;
      use(k, row + k * step);
    }
  }
}

/// Adds the warps' sums over their rows, in the order of the warps, and writes the total to the thread
/// block's row of `parts` (gridDim.y, 8 · vectors). All threads of the block must call this. Those of a
/// column ≥ vectors write nothing.
__device__ inline void put_column_sums(const Floats& sums, int column, int vectors, float* parts) {
  static_assert(kColumnWarps == kVectorWidth, "warp i adds up element i of each vector");
  __shared__ float of_warps[kColumnWarps][kVectorWidth][kWarp];
#pragma unroll
  for (int i = 0; i < kVectorWidth; ++i) of_warps[threadIdx.y][i][threadIdx.x] = sums.at[i];
  __syncthreads();
  if (column >= vectors) return;
  float sum = 0;
  for (int warp = 0; warp < kColumnWarps; ++warp) sum += of_warps[warp][threadIdx.y][threadIdx.x];
  parts[(int64_t{blockIdx.y} * vectors + column) * kVectorWidth + threadIdx.y] = sum;
}

}  // namespace adtrain::kernels
