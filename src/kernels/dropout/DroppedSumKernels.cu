#include <algorithm>

#include "base/Launch.cuh"
#include "kernels/dropout/DroppedSumKernels.h"
#include "kernels/primitives/ColumnSums.cuh"

namespace adtrain::kernels {
namespace {

constexpr int kAhead = 4;  ///< rows in flight at once

template <class Short>
__global__ void __launch_bounds__(kWarp* kColumnWarps, kColumnBlocks)
    dropped_sum_forward_kernel(const __grid_constant__ DroppedSumForward call) {
  const int vectors = call.shape.vectors(), column = static_cast<int>(blockIdx.x * kWarp + threadIdx.x);
  if (column >= vectors) return;
  const Dropout dropout(call.dropout);
  const Floats bias = unpacked<Short>(__ldg(call.bias + column));
  Vector x[kAhead], product[kAhead];
  unsigned keep[kAhead];
  for_rows_of_thread<kAhead>(
      call.shape.rows,
      [&](int k, int64_t row) {
        const int64_t place = row * vectors + column;
        x[k] = __ldg(call.x + place);
        product[k] = __ldg(call.product + place);
        keep[k] = dropout.kept(place);
      },
      [&](int k, int64_t row) {
        Floats y = unpacked<Short>(product[k]);
        const Floats residual = unpacked<Short>(x[k]);
#pragma unroll
        for (int i = 0; i < kVectorWidth; ++i) y.at[i] += bias.at[i];
        dropout.apply(y, keep[k]);
#pragma unroll
        for (int i = 0; i < kVectorWidth; ++i) y.at[i] += residual.at[i];
        call.y[row * vectors + column] = packed<Short>(y);
      });
}

template <class Short>
__global__ void __launch_bounds__(kWarp* kColumnWarps, kColumnBlocks)
    dropped_sum_backward_kernel(const __grid_constant__ DroppedSumBackward call) {
  const int vectors = call.shape.vectors(), column = static_cast<int>(blockIdx.x * kWarp + threadIdx.x);
  const Dropout dropout(call.dropout);
  Floats d_bias = {};
  if (column < vectors) {
    Vector d_y[kAhead];
    unsigned keep[kAhead];
    for_rows_of_thread<kAhead>(
        call.shape.rows,
        [&](int k, int64_t row) {
          const int64_t place = row * vectors + column;
          d_y[k] = __ldg(call.d_y + place);
          keep[k] = dropout.kept(place);
        },
        [&](int k, int64_t row) {
          Floats gradient = unpacked<Short>(d_y[k]);
          dropout.apply(gradient, keep[k]);
#pragma unroll
          for (int i = 0; i < kVectorWidth; ++i) d_bias.at[i] += gradient.at[i];
          call.d_product[row * vectors + column] = packed<Short>(gradient);
        });
  }
  put_column_sums(d_bias, column, vectors, call.parts);
}

}  // namespace

void dropped_sum_forward(const DroppedSumForward& call, cudaStream_t stream) {
  const dim3 blocks(column_blocks(call.shape),
                    static_cast<unsigned>(column_parts(call.shape, call.processors)));
  with_type(call.shape.type, [&](auto type) {
    gpu::launch("dropped_sum_forward_kernel", dropped_sum_forward_kernel<decltype(type)>, blocks,
                dim3(kWarp, kColumnWarps), 0, stream, call);
  });
}

void dropped_sum_backward(const DroppedSumBackward& call, cudaStream_t stream) {
  const dim3 blocks(column_blocks(call.shape), static_cast<unsigned>(call.part_count));
  with_type(call.shape.type, [&](auto type) {
    gpu::launch("dropped_sum_backward_kernel", dropped_sum_backward_kernel<decltype(type)>, blocks,
                dim3(kWarp, kColumnWarps), 0, stream, call);
  });
}

}  // namespace adtrain::kernels
