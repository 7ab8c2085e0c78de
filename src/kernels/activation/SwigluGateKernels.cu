#include "base/Launch.cuh"
#include "kernels/activation/ActivationKernels.h"
#include "kernels/primitives/ColumnSums.cuh"

namespace adtrain::kernels {
namespace {

constexpr int kAhead = 2;  ///< rows in flight at once, each of two or three matrices

/// The logistic (sigmoid) function.
__device__ float logistic(float x) {
  return __fdividef(1.0F, 1.0F + __expf(-x));
}

template <class Short>
__global__ void __launch_bounds__(kWarp* kColumnWarps, kColumnBlocks)
    silu_product_forward_kernel(const __grid_constant__ SiluProductForward call) {
  const int vectors = call.shape.vectors(), column = static_cast<int>(blockIdx.x * kWarp + threadIdx.x);
  if (column >= vectors) return;
  Vector a[kAhead], b[kAhead];
  for_rows_of_thread<kAhead>(
      call.shape.rows,
      [&](int k, int64_t row) {
        const Vector* factors = call.factors + row * 2 * vectors + column;
        a[k] = __ldg(factors);
        b[k] = __ldg(factors + vectors);
      },
      [&](int k, int64_t row) {
        Floats y = unpacked<Short>(a[k]);
        const Floats factor = unpacked<Short>(b[k]);
#pragma unroll
        for (int i = 0; i < kVectorWidth; ++i) y.at[i] *= logistic(y.at[i]) * factor.at[i];
        call.y[row * vectors + column] = packed<Short>(y);
      });
}

template <class Short>
__global__ void __launch_bounds__(kWarp* kColumnWarps, kColumnBlocks)
    silu_product_backward_kernel(const __grid_constant__ SiluProductBackward call) {
  const int vectors = call.shape.vectors(), column = static_cast<int>(blockIdx.x * kWarp + threadIdx.x);
  if (column >= vectors) return;
  Vector d_y[kAhead], a[kAhead], b[kAhead];
  for_rows_of_thread<kAhead>(
      call.shape.rows,
      [&](int k, int64_t row) {
        const Vector* factors = call.factors + row * 2 * vectors + column;
        d_y[k] = __ldg(call.d_y + row * vectors + column);
        a[k] = __ldg(factors);
        b[k] = __ldg(factors + vectors);
      },
      [&](int k, int64_t row) {
        const Floats gradient = unpacked<Short>(d_y[k]), factor = unpacked<Short>(b[k]);
        Floats d_a = unpacked<Short>(a[k]), d_b;
#pragma unroll
        for (int i = 0; i < kVectorWidth; ++i) {
          const float x = d_a.at[i], share = logistic(x), silu = x * share;
          d_b.at[i] = gradient.at[i] * silu;
          d_a.at[i] = gradient.at[i] * factor.at[i] * (share + silu * (1.0F - share));
        }
        Vector* d_factors = call.d_factors + row * 2 * vectors + column;
        d_factors[0] = packed<Short>(d_a);
        d_factors[vectors] = packed<Short>(d_b);
      });
}

dim3 blocks_for(const MatrixShape& shape, int processors) {
  return {column_blocks(shape), static_cast<unsigned>(column_parts(shape, processors)), 1};
}

}  // namespace

void silu_product_forward(const SiluProductForward& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) {
    gpu::launch("silu_product_forward_kernel", silu_product_forward_kernel<decltype(type)>,
                blocks_for(call.shape, call.processors), dim3(kWarp, kColumnWarps), 0, stream, call);
  });
}

void silu_product_backward(const SiluProductBackward& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) {
    gpu::launch("silu_product_backward_kernel", silu_product_backward_kernel<decltype(type)>,
                blocks_for(call.shape, call.processors), dim3(kWarp, kColumnWarps), 0, stream, call);
  });
}

}  // namespace adtrain::kernels
