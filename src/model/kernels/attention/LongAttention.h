#pragma once

#include <cstdint>

#include <driver_types.h>

#include "model/kernels/attention/HeadAttention.h"

/// Attention by itself for sequences of any length, whose keys pass by a block at a time: causal, of one
/// stream, no rotary positions; heads of 32 or 64. Arrays and errors as in HeadAttention.
namespace adtrain::kernels {

void long_attention(const HeadAttention& attention, cudaStream_t stream);

/// How many elements of dscores its backward pass asks for, at most 512 MiB unless one head takes more; 0
/// where it is not long.
int64_t long_attention_dscores(const HeadAttention& attention);

/// Deterministic.
void long_attention_backward(const HeadAttention& attention, const HeadAttentionGradients& gradients,
                             cudaStream_t stream);

}  // namespace adtrain::kernels
