#include "base/Launch.cuh"
#include "kernels/attention/LastQuery.h"
#include "kernels/primitives/ShortType.cuh"
#include "kernels/primitives/Tile.cuh"

namespace adtrain::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;

/// The result for all warps of the thread block of what each warp has found. `combine` is associative.
template <class Combine>
__device__ float of_block(float of_warp, const Combine& combine) {
  __shared__ float found[kWarps];
  __syncthreads();  // what was found before has been read
  if (threadIdx.x % kWarp == 0) found[threadIdx.x / kWarp] = of_warp;
  __syncthreads();
  float result = found[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) result = combine(result, found[warp]);
  return result;
}
__device__ float block_sum(float value) {
  return of_block(warp_sum(value), [](float a, float b) { return a + b; });
}
__device__ float block_max(float value) {
  return of_block(warp_max(value), [](float a, float b) { return fmaxf(a, b); });
}

/// What a kept weight is multiplied by, or 0.
__device__ float kept_factor(const LastQuery& call, int token) {
  if (call.kept == nullptr) return 1.0f;
  const int words = (call.tokens + 31) / 32;
  const uint32_t word = call.kept[int64_t{blockIdx.x} * words + token / 32];
  return (word >> token % 32 & 1u) != 0 ? call.kept_scale : 0.0f;
}

/// Where the thread block's row of the weights begins.
__device__ int64_t row_of_weights(const LastQuery& call, int64_t sequence_stride) {
  return blockIdx.x / call.heads * sequence_stride + int64_t{blockIdx.x} % call.heads * call.tokens;
}

template <class Short>
__global__ void __launch_bounds__(kThreads)
    last_query_weights_kernel(LastQuery call, float* scores, Short* weights, int64_t sequence_stride,
                              float* sums) {
  float* const row = scores + int64_t{blockIdx.x} * call.tokens;
  float greatest = -INFINITY;
  for (int token = threadIdx.x; token < call.tokens; token += kThreads) {
    greatest = fmaxf(greatest, row[token]);
  }
  greatest = block_max(greatest);
  float total = 0.0f;
  for (int token = threadIdx.x; token < call.tokens; token += kThreads) {
    const float exponential = __expf((row[token] - greatest) * call.score_scale);
    row[token] = exponential;
    total += exponential;
  }
  const float inverse = 1.0f / block_sum(total);
  Short* const to = weights + row_of_weights(call, sequence_stride);
  float kept = 0.0f;
  for (int token = threadIdx.x; token < call.tokens; token += kThreads) {
    const float probability = row[token] * inverse, weight = probability * kept_factor(call, token);
    row[token] = probability;
    to[token] = Short(weight);
    kept += weight;
  }
  kept = block_sum(kept);
  if (threadIdx.x == 0) sums[blockIdx.x] = kept;
}

template <class Short>
__global__ void __launch_bounds__(kThreads)
    last_query_gradients_kernel(LastQuery call, const float* probabilities, const float* d_weights,
                                const Short* d_output, const Short* value_bias, Short* d_scores,
                                int64_t sequence_stride) {
  const float* const probability = probabilities + int64_t{blockIdx.x} * call.tokens;
  const float* const d_weight = d_weights + int64_t{blockIdx.x} * call.tokens;
  const Short* const own_d_output = d_output + int64_t{blockIdx.x} * call.head_size;
  const Short* const own_bias = value_bias + int64_t{blockIdx.x} % call.heads * call.head_size;
  float by_bias = 0.0f;
  for (int feature = threadIdx.x; feature < call.head_size; feature += kThreads) {
    by_bias += static_cast<float>(own_d_output[feature]) * static_cast<float>(own_bias[feature]);
  }
  by_bias = block_sum(by_bias);
  const auto d_probability = [&](int token) {
    return (d_weight[token] + by_bias) * kept_factor(call, token);
  };
  float product = 0.0f;
  for (int token = threadIdx.x; token < call.tokens; token += kThreads) {
    product += probability[token] * d_probability(token);
  }
  product = block_sum(product);
  Short* const to = d_scores + row_of_weights(call, sequence_stride);
  for (int token = threadIdx.x; token < call.tokens; token += kThreads) {
    to[token] = Short(probability[token] * (d_probability(token) - product) * call.score_scale);
  }
}

}  // namespace

void last_query_weights(const LastQuery& call, float* scores, void* weights, int64_t sequence_stride,
                        float* sums, cudaStream_t stream) {
  with_type(call.type, [&](auto one) {
    using Short = decltype(one);
    gpu::launch("last_query_weights_kernel", last_query_weights_kernel<Short>, call.sequences * call.heads,
                kThreads, 0, stream, call, scores, static_cast<Short*>(weights), sequence_stride, sums);
  });
}

void last_query_gradients(const LastQuery& call, const float* probabilities, const float* d_weights,
                          const void* d_output, const void* value_bias, void* d_scores,
                          int64_t sequence_stride, cudaStream_t stream) {
  with_type(call.type, [&](auto one) {
    using Short = decltype(one);
    gpu::launch("last_query_gradients_kernel", last_query_gradients_kernel<Short>,
                call.sequences * call.heads, kThreads, 0, stream, call, probabilities, d_weights,
                static_cast<const Short*>(d_output), static_cast<const Short*>(value_bias),
                static_cast<Short*>(d_scores), sequence_stride);
  });
}

}  // namespace adtrain::kernels
