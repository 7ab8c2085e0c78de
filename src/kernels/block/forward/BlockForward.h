#pragma once

#include "kernels/block/BlockTensors.h"

namespace adtrain::kernels {

/// Runs the whole block: activations.x -> y (S · R, D) and all other arrays of `activations`. Returns at
/// once; throws EnvironmentError where the kernel cannot be launched. For shapes for which KernelPlan chooses
/// whole blocks.
void block_forward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                   const BlockActivations& activations, __nv_bfloat16* y, cudaStream_t stream);

/// What block_forward() calls where only the last token is output, with padding or without.
void last_token_forward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                        const BlockActivations& activations, __nv_bfloat16* y, cudaStream_t stream);

/// What block_forward() calls for sequences that may begin with padding. It has kernels of its own, because
/// these are slower.
void padded_block_forward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                          const BlockActivations& activations, __nv_bfloat16* y, cudaStream_t stream);

}  // namespace adtrain::kernels
