#pragma once

#include "kernels/block/BlockTensors.h"
#include "kernels/primitives/PartialSums.h"

namespace adtrain::kernels {

/// How many partial sums attention_backward() writes: the number of its thread blocks.
int attention_backward_parts(const BlockShape& shape);

/// How many elements attention_backward() needs for `carried`, the gradients that its thread blocks carry
/// from a sequence's queries to its context; 0 without queries.
int64_t attention_backward_carried(const BlockShape& shape);

/// The backward pass of the attention sublayer, from x1 to x: gradient `dx1` of x1 (S · R, D) -> `dx` of x (S
/// · (tokens + queries), D), and `parts` (attention_backward_parts, AttentionGradients::total), each thread
/// block's partial sums for the parameters. It writes all of `parts` (gaps: zeros). `carried`
/// (attention_backward_carried), 16-byte aligned, is scratch memory. Deterministic. Reads x,
/// attention_output, lse, normed1 and inverse1. It also adds up `ahead`. Returns at once; throws
/// EnvironmentError where the kernel cannot be launched.
void attention_backward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                        const BlockActivations& activations, const __nv_bfloat16* dx1, __nv_bfloat16* dx,
                        float* parts, __nv_bfloat16* carried, const UnaddedParts& ahead, cudaStream_t stream);

/// What attention_backward() calls where only the last token is output, with padding or without, and how many
/// partial sums it then writes.
int last_token_parts(const BlockShape& shape);
void last_token_backward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                         const BlockActivations& activations, const __nv_bfloat16* dx1, __nv_bfloat16* dx,
                         float* parts, const UnaddedParts& ahead, cudaStream_t stream);

/// What attention_backward() calls for sequences that may begin with padding. It has kernels of its own.
void padded_attention_backward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                               const BlockActivations& activations, const __nv_bfloat16* dx1,
                               __nv_bfloat16* dx, float* parts, __nv_bfloat16* carried,
                               const UnaddedParts& ahead, cudaStream_t stream);

}  // namespace adtrain::kernels
