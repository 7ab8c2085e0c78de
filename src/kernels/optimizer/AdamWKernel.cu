#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/Launch.cuh"
#include "kernels/optimizer/AdamWKernel.h"
#include "kernels/primitives/EarlyStart.cuh"

namespace adtrain {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kWarp = 32, kAllLanes = 0xffffffffu;

/// AdamWRule in fp32 for the kernels; all values are computed in double precision first.
struct DeviceRule {
  explicit DeviceRule(const AdamWRule& rule)
      : beta1(static_cast<float>(rule.beta1)),
        beta2(static_cast<float>(rule.beta2)),
        rest1(static_cast<float>(1 - rule.beta1)),
        rest2(static_cast<float>(1 - rule.beta2)),
        log_beta1(static_cast<float>(std::log(rule.beta1))),
        log_beta2(static_cast<float>(std::log(rule.beta2))),
        epsilon(static_cast<float>(rule.epsilon)),
        weight_decay(static_cast<float>(rule.weight_decay)),
        max_grad_norm(static_cast<float>(rule.max_grad_norm)) {}

  float beta1, beta2, rest1, rest2, log_beta1, log_beta2, epsilon, weight_decay, max_grad_norm;
};

/// Returns the sum of the threads' values, in every thread of the block.
__device__ float block_sum(float value) {
  __shared__ float of_warps[kThreads / kWarp];
  for (unsigned lanes = kWarp / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0;
  for (const float of_warp : of_warps) sum += of_warp;
  __syncthreads();  // the next sum is written to the same place
  return sum;
}

/// What measure_kernel looks for in the gradient.
struct Findings {
  float squares = 0;
  bool overflows = false;

  __device__ void add(float element, float unscale) {
    overflows |= !isfinite(element);
    squares = fmaf(element * unscale, element * unscale, squares);
  }
  /// Merges the findings of all threads of a block; every thread gets the result.
  __device__ Findings of_block() const { return {block_sum(squares), __syncthreads_or(overflows) != 0}; }
};

/// Writes this block's findings. Returns whether it was the last block to do so; the findings of all blocks
/// may then be read.
__device__ bool hand_in(AdamWMemory& memory, const Findings& found) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    memory.squares[blockIdx.x] = found.squares;
    memory.overflows[blockIdx.x] = found.overflows ? 1 : 0;
    __threadfence();  // the findings are visible before the arrival is counted
    const unsigned before = atomicInc(&memory.arrived, gridDim.x - 1);  // 0 again after the last block
    is_last = before == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

__device__ Findings of_all_blocks(const AdamWMemory& memory) {
  Findings found;
  for (unsigned part = threadIdx.x; part < gridDim.x; part += kThreads) {
    found.squares += __ldcg(memory.squares + part);
    found.overflows |= __ldcg(memory.overflows + part) != 0;
  }
  return found.of_block();
}

/// Counts the step and computes the factors of the update. One thread calls this.
__device__ void decide(const DeviceRule& rule, const AdamWStep& step, const Findings& found, float unscale) {
  const float count = *step.step_count + 1, learning_rate = *step.learning_rate;
  const float norm = sqrtf(found.squares);
  const bool skips = step.loss_factor != nullptr && found.overflows;
  *step.gradient_norm = norm;
  if (!skips) *step.step_count = count;
  if (step.loss_factor != nullptr) *step.overflow = skips ? 1.0f : 0.0f;
  // As PyTorch's clip_grad_norm_: the 1e-6 avoids a division by zero for a zero gradient. NaN stays NaN.
  const float clipping = rule.max_grad_norm > 0 ? rule.max_grad_norm / (norm + 1e-6f) : 1;
  // 1 − beta^count without cancellation
  const float correction1 = -expm1f(count * rule.log_beta1), correction2 = -expm1f(count * rule.log_beta2);
  step.memory->factors = {unscale * (clipping > 1 ? 1 : clipping), learning_rate * rule.weight_decay,
                          learning_rate / correction1, 1 / sqrtf(correction2), skips};
}

__device__ float unscale_of(const AdamWStep& step) {
  return step.loss_factor != nullptr ? 1 / *step.loss_factor : 1;
}

/// Every block sums the squares of its part of the gradient. The last block adds the sums, in their order,
/// and decides, or, of a step in parts, adds the result to what was found of other parts.
template <bool kInParts>
__global__ void __launch_bounds__(kThreads) measure_kernel(DeviceRule rule, AdamWStep step) {
  kernels::follow_kernels_ahead();
  const auto* gradient = reinterpret_cast<const float4*>(step.gradient);
  const float unscale = unscale_of(step);
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x, stride = int64_t{gridDim.x} * kThreads;
  Findings found;
#pragma unroll 4
  for (int64_t quad = first; quad < step.size / 4; quad += stride) {
    const float4 elements = gradient[quad];
    found.add(elements.x, unscale);
    found.add(elements.y, unscale);
    found.add(elements.z, unscale);
    found.add(elements.w, unscale);
  }
  if (!hand_in(*step.memory, found.of_block())) return;
  const Findings all = of_all_blocks(*step.memory);
  if (threadIdx.x != 0) return;
  if constexpr (kInParts) {
    step.memory->found[0] += all.squares;
    step.memory->found[1] += all.overflows ? 1.0f : 0.0f;
  } else {
    decide(rule, step, all, unscale);
  }
}

/// Of a step in parts, when all of them are measured. One warp runs it.
__global__ void __launch_bounds__(kWarp) decide_kernel(DeviceRule rule, AdamWStep step) {
  if (threadIdx.x != 0) return;
  const float* found = step.memory->found;
  decide(rule, step, {found[0], found[1] > 0}, unscale_of(step));
}

__device__ void update(const DeviceRule& rule, const AdamWFactors& factors, float gradient, float& parameter,
                       float& first_moment, float& second_moment) {
  gradient *= factors.gradient;
  first_moment = fmaf(rule.beta1, first_moment, rule.rest1 * gradient);
  second_moment = fmaf(rule.beta2, second_moment, rule.rest2 * gradient * gradient);
  parameter -= factors.decay * parameter;
  parameter -= factors.rate * first_moment / (sqrtf(second_moment) * factors.inverse_root + rule.epsilon);
}

/// Two pairs of 16-bit numbers as one 8-byte word, to be stored at once.
template <class Pair>
__device__ uint2 joined(Pair low, Pair high) {
  const Pair pairs[] = {low, high};
  uint2 words;
  std::memcpy(&words, pairs, sizeof words);
  return words;
}

__device__ void put_low_precision(const AdamWStep& step, int64_t quad, const float4& values) {
  uint2& place = static_cast<uint2*>(step.low_precision)[quad];
  if (step.low_precision_type == LowPrecisionType::kBFloat16) {
    place = joined(__floats2bfloat162_rn(values.x, values.y), __floats2bfloat162_rn(values.z, values.w));
  } else if (step.low_precision_type == LowPrecisionType::kHalf) {
    place = joined(__floats2half2_rn(values.x, values.y), __floats2half2_rn(values.z, values.w));
  }
}

/// Each thread updates four neighbouring elements (a float4).
__global__ void __launch_bounds__(kThreads) update_kernel(DeviceRule rule, AdamWStep step) {
  kernels::await_kernels_ahead();  // alone: kernels that start early read weights, which this one writes
  const int64_t quad = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (quad >= step.size / 4) return;
  float4& gradient_place = reinterpret_cast<float4*>(step.gradient)[quad];
  float4& parameter_place = reinterpret_cast<float4*>(step.parameters)[quad];
  float4& first_place = reinterpret_cast<float4*>(step.first_moment)[quad];
  float4& second_place = reinterpret_cast<float4*>(step.second_moment)[quad];
  // All loads are issued before the first result is needed.
  const float4 gradient = gradient_place;
  float4 parameter = parameter_place, first = first_place, second = second_place;
  const AdamWFactors factors = step.memory->factors;

  if (!factors.skips) {
    update(rule, factors, gradient.x, parameter.x, first.x, second.x);
    update(rule, factors, gradient.y, parameter.y, first.y, second.y);
    update(rule, factors, gradient.z, parameter.z, first.z, second.z);
    update(rule, factors, gradient.w, parameter.w, first.w, second.w);
    parameter_place = parameter;
    first_place = first;
    second_place = second;
    put_low_precision(step, quad, parameter);
  }
  gradient_place = {0, 0, 0, 0};  // last, so that the store comes after the load of the old values
}

/// With four elements a thread.
int64_t blocks_of(const AdamWStep& step) {
  return (step.size / 4 + kThreads - 1) / kThreads;
}

template <bool kInParts>
void measure(const AdamWRule& rule, const AdamWStep& step, cudaStream_t stream) {
  if (step.size == 0) return;
  if (step.size % 4 != 0) throw std::invalid_argument("AdamW on GPUs takes four parameters at once.");
  const auto parts = static_cast<unsigned>(std::min<int64_t>(blocks_of(step), AdamWMemory::kMostParts));
  kernels::launch_early("measure_kernel", measure_kernel<kInParts>, parts, kThreads, 0, stream,
                        DeviceRule(rule), step);
}

}  // namespace

void take_adamw_step(const AdamWRule& rule, const AdamWStep& step, cudaStream_t stream) {
  measure<false>(rule, step, stream);
  update_adamw_part(rule, step, stream);
}

void measure_adamw_part(const AdamWRule& rule, const AdamWStep& part, cudaStream_t stream) {
  measure<true>(rule, part, stream);
}

void decide_adamw_step(const AdamWRule& rule, const AdamWStep& step, cudaStream_t stream) {
  gpu::launch("decide_kernel", decide_kernel, 1, kWarp, 0, stream, DeviceRule(rule), step);
}

void update_adamw_part(const AdamWRule& rule, const AdamWStep& part, cudaStream_t stream) {
  if (part.size == 0) return;
  kernels::launch_early("update_kernel", update_kernel, static_cast<unsigned>(blocks_of(part)), kThreads, 0,
                        stream, DeviceRule(rule), part);
}

}  // namespace adtrain
