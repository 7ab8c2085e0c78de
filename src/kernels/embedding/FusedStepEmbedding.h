#pragma once

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"
#include "kernels/embedding/StepEmbedding.h"

/// The embedding of GPT-2's tokens as one autograd operation on our own GPU kernels. Gpt2Ad's plain operators
/// define the correct results.
namespace adtrain::kernels {

/// The parameters of the embedding in bf16 or fp16; they are consecutive in the model, in this order.
struct StepParameters {
  at::Tensor states, actions;             ///< (cells, width), (actions, width)
  at::Tensor reward_weight, reward_bias;  ///< (width, 1), (width)
  at::Tensor positions;                   ///< (at least tokens, width)
};

/// Columns of a batch on the GPU, dense or not: int32 (B, L, 2), int32 (B, steps), fp32 (B, steps), where
/// there are at least L − 1 steps.
struct StepColumns {
  at::Tensor states, actions, rewards;
};

/// Steps -> the first block's input (B, 3 L − 2, width). The parameters' gradients are added to
/// `main_gradients` if it is not null; else autograd gets them. Throws where sizes do not fit each other.
at::Tensor fused_step_embedding(const StepColumns& steps, int64_t grid_size, const StepParameters& parameters,
                                MainGradients* main_gradients);

}  // namespace adtrain::kernels
