#pragma once

#include "kernels/block/pre_norm/PreNormTensors.h"

namespace adtrain::kernels {

/// attention.normed and the residual stream x (S · (tokens + queries), D) -> x1 (S · R, D), attention.read
/// and attention.lse. Returns at once; throws EnvironmentError where the kernel cannot be launched. For
/// shapes that KernelPlan takes for whole blocks.
void pre_norm_attention(const BlockShape& shape, const PreNormAttention& attention, const __nv_bfloat16* x,
                        __nv_bfloat16* x1, cudaStream_t stream);

/// How many partial sums pre_norm_attention_backward() writes: thread blocks of its launch.
int pre_norm_attention_backward_parts(const BlockShape& shape);

/// The way back, from x1 to n1: gradient `dx1` (S · R, D) -> `dnormed` of n1 (S · (tokens + queries), D),
/// without what goes past the half by the residual, and each thread block's sums for the parameters, `parts`
/// (pre_norm_attention_backward_parts, PreNormAttentionGradients::total), all of which it writes (gaps:
/// zeros). `carried`: as of attention_backward(). Deterministic. Returns at once; throws EnvironmentError
/// where the kernel cannot be launched.
void pre_norm_attention_backward(const BlockShape& shape, const PreNormAttention& attention,
                                 const __nv_bfloat16* dx1, __nv_bfloat16* dnormed, float* parts,
                                 __nv_bfloat16* carried, cudaStream_t stream);

}  // namespace adtrain::kernels
