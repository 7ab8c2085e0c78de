#pragma once

#include <driver_types.h>

#include "kernels/attention/MultiheadAttention.h"

/// Attention by itself whose keys and values stay in shared memory: up to kMostTokens tokens, heads of 8, 16
/// or 32, one stream or two, padding, rotary positions. Arrays and errors as in MultiheadAttention.
namespace adtrain::kernels {

void resident_attention(const MultiheadAttention& attention, cudaStream_t stream);

/// Deterministic.
void resident_attention_backward(const MultiheadAttention& attention,
                                 const MultiheadAttentionGradients& gradients, cudaStream_t stream);

}  // namespace adtrain::kernels
