#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/Launch.cuh"
#include "kernels/dropout/RowDropout.h"

namespace adtrain::kernels {
namespace {

constexpr int kLanes = 32, kRowsOfBlock = 8;

__device__ float scaled(float value, float scale) {
  return value * scale;
}
__device__ __half scaled(__half value, float scale) {
  return __float2half_rn(__half2float(value) * scale);
}
__device__ __nv_bfloat16 scaled(__nv_bfloat16 value, float scale) {
  return __float2bfloat16_rn(__bfloat162float(value) * scale);
}

/// Each warp has a row.
template <class Element>
__global__ void __launch_bounds__(kLanes* kRowsOfBlock)
    drop_rows_kernel(const Element* x, const __grid_constant__ RowDropout dropout, Element* y) {
  const int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kLanes;
  if (row >= dropout.rows) return;
  const int64_t sequence = row / dropout.rows_of_sequence, in_sequence = row % dropout.rows_of_sequence;
  const uint64_t call = seed_of(static_cast<uint64_t>(*dropout.seed), dropout.place);
  const uint64_t key =
      dropout_row_key(call, dropout.sequences[sequence] * dropout.rows_of_sequence + in_sequence);
  for (int column = threadIdx.x % kLanes; column < dropout.width; column += kLanes) {
    const int64_t place = row * dropout.width + column;
    const bool keeps = dropout_words(key, static_cast<uint32_t>(column)) <= dropout.rate.last_kept;
    y[place] = scaled(x[place], keeps ? dropout.rate.scale : 0.0F);
  }
}

template <class Element>
void drop_rows_of(const void* x, const RowDropout& dropout, void* y, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(gpu::divided_up(dropout.rows, kRowsOfBlock));
  gpu::launch("drop_rows_kernel", drop_rows_kernel<Element>, blocks, kLanes * kRowsOfBlock, 0, stream,
              static_cast<const Element*>(x), dropout, static_cast<Element*>(y));
}

}  // namespace

void drop_rows(const void* x, const RowDropout& dropout, void* y, cudaStream_t stream) {
  if (dropout.rows == 0) return;
  switch (dropout.type) {
    case FloatType::kFloat:
      return drop_rows_of<float>(x, dropout, y, stream);
    case FloatType::kHalf:
      return drop_rows_of<__half>(x, dropout, y, stream);
    case FloatType::kBFloat16:
      return drop_rows_of<__nv_bfloat16>(x, dropout, y, stream);
  }
}

}  // namespace adtrain::kernels
