#pragma once

#include <driver_types.h>

#include "kernels/attention/MultiheadAttention.h"

/// Streaming K/V over two streams: a pass of StreamingAttention.h over the context, and one of the queries
/// over the context before their positions. To each query's sum a small kernel then adds the query's own key.
/// Arrays and errors are as in MultiheadAttention.
namespace adtrain::kernels {

void two_stream_attention(const MultiheadAttention& attention, cudaStream_t stream);

/// Deterministic.
void two_stream_attention_backward(const MultiheadAttention& attention,
                                   const MultiheadAttentionGradients& gradients, cudaStream_t stream);

}  // namespace adtrain::kernels
