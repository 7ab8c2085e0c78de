#include "base/Launch.cuh"
#include "kernels/embedding/NewestTokenKernel.h"
#include "kernels/primitives/RowVectors.cuh"

namespace adtrain::kernels {
namespace {

constexpr int kThreads = 128;

/// Eight neighbouring columns of a row of a table.
__device__ Floats columns_of(const float* table, int64_t row, int width, int vector) {
  const auto* const from = reinterpret_cast<const float4*>(table + row * width) + 2 * vector;
  const float4 low = __ldg(from), high = __ldg(from + 1);
  return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

/// A thread has a vector of a token.
template <class Short>
__global__ void __launch_bounds__(kThreads) newest_token_kernel(NewestTokenSums job) {
  const int64_t place = int64_t{blockIdx.x} * kThreads + threadIdx.x, row = place / job.shape.vectors();
  if (row >= job.shape.rows) return;
  const auto vector = static_cast<int>(place - row * job.shape.vectors());
  const int64_t newest = (row + 1) * job.transitions - 1, before = newest - 1;
  const float reward = __ldg(job.rewards + before);
  const Floats action = columns_of(job.of_action, __ldg(job.actions + before), job.shape.width, vector),
               x = columns_of(job.of_x, __ldg(job.states + 2 * newest), job.shape.width, vector),
               y = columns_of(job.of_y, __ldg(job.states + 2 * newest + 1), job.shape.width, vector),
               of_reward = columns_of(job.of_reward, 0, job.shape.width, vector);
  Floats sums;
#pragma unroll
  for (int i = 0; i < kVectorWidth; ++i)
    sums.at[i] = fmaf(reward, of_reward.at[i], action.at[i] + (x.at[i] + y.at[i]));
  job.tokens[place] = packed<Short>(sums);
}

}  // namespace

void sum_newest_tokens(const NewestTokenSums& job, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((job.shape.rows * job.shape.vectors() + kThreads - 1) / kThreads);
  with_type(job.shape.type, [&](auto type) {
    gpu::launch("newest_token_kernel", newest_token_kernel<decltype(type)>, blocks, kThreads, 0, stream, job);
  });
}

}  // namespace adtrain::kernels
