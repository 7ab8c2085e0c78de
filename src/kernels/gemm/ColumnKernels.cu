#include "base/Launch.cuh"
#include "kernels/gemm/ColumnKernels.h"
#include "kernels/primitives/ColumnSums.cuh"

namespace adtrain::kernels {
namespace {

template <class Short, bool kJoins>
__global__ void __launch_bounds__(kWarp* kColumnWarps, kColumnBlocks)
    join_columns_kernel(const __grid_constant__ JoinColumns call) {
  constexpr int kAhead = 4;  // rows in flight at once
  const int vectors = call.shape.vectors(), column = static_cast<int>(blockIdx.x * kWarp + threadIdx.x);
  Floats sums = {};
  if (column < vectors) {
    const int of_each = vectors / call.matrix_count;
    const Vector* matrix = call.matrices[column / of_each] + column % of_each;
    Vector ahead[kAhead];
    for_rows_of_thread<kAhead>(
        call.shape.rows, [&](int k, int64_t row) { ahead[k] = __ldcs(matrix + row * of_each); },
        [&](int k, int64_t row) {
          if constexpr (kJoins) call.joined[row * vectors + column] = ahead[k];
          const Floats values = unpacked<Short>(ahead[k]);
#pragma unroll
          for (int i = 0; i < kVectorWidth; ++i) sums.at[i] += values.at[i];
        });
  }
  put_column_sums(sums, column, vectors, call.parts);
}

}  // namespace

void join_columns(const JoinColumns& call, cudaStream_t stream) {
  const dim3 blocks(column_blocks(call.shape), static_cast<unsigned>(call.part_count));
  with_type(call.shape.type, [&](auto type) {
    using Short = decltype(type);
    gpu::launch("join_columns_kernel",
                call.joined != nullptr ? join_columns_kernel<Short, true> : join_columns_kernel<Short, false>,
                blocks, dim3(kWarp, kColumnWarps), 0, stream, call);
  });
}

}  // namespace adtrain::kernels
