#pragma once

#include "kernels/block/BlockTensors.h"

namespace adtrain::kernels {

/// How many partial sums mlp_backward() writes: the number of its thread blocks.
int mlp_backward_parts(const BlockShape& shape);

/// The backward pass of the MLP sublayer, from y to x1: gradient `dy` of y (S · R, D) -> `dx1` of x1 (S · R,
/// D), and `parts` (mlp_backward_parts, MlpGradients::total), each thread block's partial sums for the
/// parameters. It writes all of `parts` (gaps: zeros). Deterministic. Reads normed1, normed2 and inverse2.
/// `dx1` may not be `dy`. Returns at once; throws EnvironmentError where the kernel cannot be launched.
void mlp_backward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                  const BlockActivations& activations, const __nv_bfloat16* dy, __nv_bfloat16* dx1,
                  float* parts, cudaStream_t stream);

}  // namespace adtrain::kernels
