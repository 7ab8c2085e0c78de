#include "base/Launch.cuh"
#include "kernels/norm/NormedHeadKernel.h"
#include "kernels/primitives/RowVectors.cuh"

namespace adtrain::kernels {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;

/// Sums over a row. With d = x − x₀, which keeps the digits of rows that are far from 0:
struct RowSums {
  float d = 0.0f, squares = 0.0f, product = 0.0f;  ///< Σ d, Σ d² and Σ d γ W
  float of_mean = 0.0f, of_bias = 0.0f;            ///< Σ γ W and Σ β W

  __device__ void add(const RowSums& other) {
    d += other.d;
    squares += other.squares;
    product += other.product;
    of_mean += other.of_mean;
    of_bias += other.of_bias;
  }
  /// Of neighbouring lanes.
  __device__ void add_up(int lanes) {
    for (int apart = lanes / 2; apart > 0; apart /= 2) {
      add({__shfl_xor_sync(kAllLanes, d, apart), __shfl_xor_sync(kAllLanes, squares, apart),
           __shfl_xor_sync(kAllLanes, product, apart), __shfl_xor_sync(kAllLanes, of_mean, apart),
           __shfl_xor_sync(kAllLanes, of_bias, apart)});
    }
  }
};

/// A thread block has an output of a row, and finds the row's norm in the same pass:
///
///     logit = (Σ d γ W − mean(d) Σ γ W) / deviation(d) + Σ β W + bias
///
/// Its instructions are few, as they come from memory behind blocks that have filled the caches.
template <class Short>
__global__ void __launch_bounds__(kThreads) normed_head_kernel(const __grid_constant__ NormedHead call) {
  __shared__ RowSums of_warps[kWarps];
  const int64_t row = blockIdx.x / call.outputs, output = blockIdx.x % call.outputs;
  const int vectors = call.shape.vectors(), thread = static_cast<int>(threadIdx.x);
  const Vector *x = call.x + row * vectors, *weights = call.weight + output * vectors;
  const bool normed = call.norm_weight != nullptr, of_layer = call.norm_bias != nullptr;
  const float first = of_layer ? unpacked<Short>(__ldg(x).x).x : 0.0f;
  RowSums sums;
#pragma unroll 1
  for (int v = thread; v < vectors; v += kThreads) {
    const Floats values = unpacked<Short>(__ldg(x + v)), weight = unpacked<Short>(__ldg(weights + v)),
                 gamma = normed ? unpacked<Short>(__ldg(call.norm_weight + v)) : Floats{},
                 beta = of_layer ? unpacked<Short>(__ldg(call.norm_bias + v)) : Floats{};
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      const float d = values.at[i] - first, factor = normed ? weight.at[i] * gamma.at[i] : weight.at[i];
      sums.add({d, d * d, d * factor, factor, beta.at[i] * weight.at[i]});
    }
  }
  sums.add_up(kWarp);
  if (thread % kWarp == 0) of_warps[thread / kWarp] = sums;
  __syncthreads();
  if (thread >= kWarp) return;
  sums = of_warps[thread % kWarps];
  sums.add_up(kWarps);
  if (thread != 0) return;
  const float per_element = 1.0f / static_cast<float>(call.shape.width),
              mean = of_layer ? sums.d * per_element : 0.0f,
              variance = fmaxf(sums.squares * per_element - mean * mean, 0.0f),
              inverse = normed ? rsqrtf(variance + call.epsilon) : 1.0f;
  const auto bias = static_cast<float>(__ldg(static_cast<const Short*>(call.bias) + output));
  call.logits[blockIdx.x] = fmaf(inverse, fmaf(-mean, sums.of_mean, sums.product), sums.of_bias + bias);
}

}  // namespace

void normed_head(const NormedHead& call, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(call.shape.rows * call.outputs);
  with_type(call.shape.type, [&](auto type) {
    gpu::launch("normed_head_kernel", normed_head_kernel<decltype(type)>, blocks, kThreads, 0, stream, call);
  });
}

}  // namespace adtrain::kernels
