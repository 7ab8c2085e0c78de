#pragma once

#include "kernels/block/BlockTensors.h"

namespace adtrain::kernels {

/// How many partial sums attention_backward() writes: thread blocks of its launch.
int attention_backward_parts(const BlockShape& shape);

/// How many elements attention_backward() needs for what its thread blocks carry from a sequence's queries to
/// its context: none without queries.
int64_t attention_backward_carried(const BlockShape& shape);

/// The backward pass of the block's first half, from x1 to x: gradient `dx1` of x1 (S · R, D) -> `dx` of x (S
/// · (tokens + queries), D), and each thread block's sums for the parameters, `parts`
/// (attention_backward_parts, AttentionGradients::total), all of which it writes (gaps: zeros). `carried`
/// (attention_backward_carried), 16-byte aligned, is its own meanwhile. Deterministic. Reads x, read,
/// lse, normed1 and inverse1. Returns at once; throws EnvironmentError where the kernel cannot be
/// launched.
void attention_backward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                        const BlockActivations& activations, const __nv_bfloat16* dx1, __nv_bfloat16* dx,
                        float* parts, __nv_bfloat16* carried, cudaStream_t stream);

/// What attention_backward() calls where only the last token comes out, padding or not, and how many partial
/// sums that writes.
int last_token_parts(const BlockShape& shape);
void last_token_backward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                         const BlockActivations& activations, const __nv_bfloat16* dx1, __nv_bfloat16* dx,
                         float* parts, cudaStream_t stream);

/// What attention_backward() calls for sequences that may begin with padding, by kernels of its own.
void padded_attention_backward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                               const BlockActivations& activations, const __nv_bfloat16* dx1,
                               __nv_bfloat16* dx, float* parts, __nv_bfloat16* carried, cudaStream_t stream);

}  // namespace adtrain::kernels
