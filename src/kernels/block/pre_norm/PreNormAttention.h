#pragma once

#include "kernels/block/pre_norm/PreNormTensors.h"
#include "kernels/primitives/PartialSums.h"

namespace adtrain::kernels {

/// From attention.normed and the residual stream x (S · (tokens + queries), D) to x1 (S · R, D),
/// attention.attention_output and attention.lse. Returns at once; throws EnvironmentError where the kernel
/// cannot be launched. For shapes for which KernelPlan chooses whole blocks.
void pre_norm_attention(const BlockShape& shape, const PreNormAttention& attention, const __nv_bfloat16* x,
                        __nv_bfloat16* x1, cudaStream_t stream);

/// How many partial sums pre_norm_attention_backward() writes: the number of its thread blocks.
int pre_norm_attention_backward_parts(const BlockShape& shape);

/// The backward pass, from x1 to n1: gradient `dx1` (S · R, D) -> `dnormed` of n1 (S · (tokens + queries),
/// D), without the gradient through the residual connection, and `parts` (pre_norm_attention_backward_parts,
/// PreNormAttentionGradients::total), each thread block's partial sums for the parameters. It writes all of
/// `parts` (gaps: zeros). `carried`, `ahead`: as for attention_backward(). Deterministic. Returns at once;
/// throws EnvironmentError where the kernel cannot be launched.
void pre_norm_attention_backward(const BlockShape& shape, const PreNormAttention& attention,
                                 const __nv_bfloat16* dx1, __nv_bfloat16* dnormed, float* parts,
                                 __nv_bfloat16* carried, const UnaddedParts& ahead, cudaStream_t stream);

}  // namespace adtrain::kernels
