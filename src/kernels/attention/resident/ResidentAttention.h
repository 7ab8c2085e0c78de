#pragma once

#include <driver_types.h>

#include "kernels/attention/MultiheadAttention.h"

/// Resident-KV attention without its projections: keys and values stay in shared memory. Supports up to
/// kMostTokens tokens, heads of 8, 16 or 32, one stream or two, padding, and rotary positions. Arrays and
/// errors are as in MultiheadAttention.
namespace adtrain::kernels {

void resident_attention(const MultiheadAttention& attention, cudaStream_t stream);

/// Deterministic.
void resident_attention_backward(const MultiheadAttention& attention,
                                 const MultiheadAttentionGradients& gradients, cudaStream_t stream);

}  // namespace adtrain::kernels
