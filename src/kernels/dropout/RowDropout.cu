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

template <class Element, int kElements>
struct alignas(kElements * sizeof(Element)) Neighbours {
  Element at[kElements];
};

/// Each warp has a row, and each lane `kElements` neighbours of it at once.
template <class Element, int kElements>
__global__ void __launch_bounds__(kLanes* kRowsOfBlock)
    drop_rows_kernel(const Neighbours<Element, kElements>* x, const __grid_constant__ RowDropout dropout,
                     Neighbours<Element, kElements>* y) {
  const int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kLanes;
  if (row >= dropout.rows) return;
  const int64_t sequence = row / dropout.rows_of_sequence, in_sequence = row % dropout.rows_of_sequence;
  const uint64_t call = seed_of(static_cast<uint64_t>(*dropout.seed), dropout.place);
  const uint64_t key =
      dropout_row_key(call, dropout.sequences[sequence] * dropout.rows_of_sequence + in_sequence);
  const int width = dropout.width / kElements;
  for (int i = threadIdx.x % kLanes; i < width; i += kLanes) {
    Neighbours<Element, kElements> neighbours = x[row * width + i];
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      const bool keeps =
          dropout_words(key, static_cast<uint32_t>(kElements * i + k)) <= dropout.rate.last_kept;
      neighbours.at[k] = scaled(neighbours.at[k], keeps ? dropout.rate.scale : 0.0F);
    }
    y[row * width + i] = neighbours;
  }
}

template <class Element, int kElements>
void drop_rows_of(const void* x, const RowDropout& dropout, void* y, cudaStream_t stream) {
  using Several = Neighbours<Element, kElements>;
  const auto blocks = static_cast<unsigned>(gpu::divided_up(dropout.rows, kRowsOfBlock));
  gpu::launch("drop_rows_kernel", drop_rows_kernel<Element, kElements>, blocks, kLanes * kRowsOfBlock, 0,
              stream, static_cast<const Several*>(x), dropout, static_cast<Several*>(y));
}

/// By loads and stores of 16 bytes where rows allow it, and are so long that all lanes have some.
template <class Element>
void drop_rows_of(const void* x, const RowDropout& dropout, void* y, cudaStream_t stream) {
  constexpr int kBytes = 16, kMost = kBytes / static_cast<int>(sizeof(Element));
  const auto aligned = [](const void* array) { return reinterpret_cast<uintptr_t>(array) % kBytes == 0; };
  if (dropout.width % kMost == 0 && dropout.width >= kLanes * kMost && aligned(x) && aligned(y))
    return drop_rows_of<Element, kMost>(x, dropout, y, stream);
  drop_rows_of<Element, 1>(x, dropout, y, stream);
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
