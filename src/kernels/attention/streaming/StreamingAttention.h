#pragma once

#include <cstdint>

#include <driver_types.h>

#include "kernels/attention/MultiheadAttention.h"

/// Attention by itself for sequences of any length, whose keys are streamed block by block: causal, of one
/// stream, no rotary positions; heads of 32 or 64. Arrays and errors as in MultiheadAttention.
namespace adtrain::kernels {

void streaming_attention(const MultiheadAttention& attention, cudaStream_t stream);

/// How many elements of dscores its backward pass asks for, at most 512 MiB unless one head takes more; 0
/// where it is not streaming.
int64_t streaming_attention_dscores(const MultiheadAttention& attention);

/// Deterministic.
void streaming_attention_backward(const MultiheadAttention& attention,
                                  const MultiheadAttentionGradients& gradients, cudaStream_t stream);

}  // namespace adtrain::kernels
