#pragma once

#include <driver_types.h>

#include "kernels/attention/MultiheadAttention.h"

/// Streaming K/V: attention without its projections for sequences of any length, whose keys and values stream
/// by in blocks. It is causal, with one stream and no rotary positions; heads of 16, 32 or 64. Its kernels
/// are for GPUs of compute capability 9.0. Arrays and errors are as in MultiheadAttention.
namespace adtrain::kernels {

void streaming_attention(const MultiheadAttention& attention, cudaStream_t stream);

/// Deterministic.
void streaming_attention_backward(const MultiheadAttention& attention,
                                  const MultiheadAttentionGradients& gradients, cudaStream_t stream);

}  // namespace adtrain::kernels
