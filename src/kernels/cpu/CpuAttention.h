#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/TokenStreams.h"
#include "kernels/rope/Rotary.h"

/// Attention on the CPU in one pass over each head, which stays in the cache from the rotation to the
/// attention output. It computes the same as `library_attention` with torch's operators, in a third of the
/// time for short sequences.
namespace adtrain::kernels {

/// Whether `attend_on_cpu` supports this: fp32 on the CPU, head size a multiple of eight, no padding
/// and no packed rows.
bool cpu_attention_fits(const at::Tensor& qkv, const TokenStreams& streams);

/// As `adtrain::attend`, with dropout of the weights (B · heads · rows, context) by CpuDropout.
/// Differentiable with respect to qkv. Runs on torch's threads.
at::Tensor attend_on_cpu(const at::Tensor& qkv, int64_t rows, const TokenStreams& streams,
                         const Rotary& rotary, double dropout_rate);

}  // namespace adtrain::kernels
