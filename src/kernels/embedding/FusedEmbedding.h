#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"
#include "kernels/embedding/TokenEmbedding.h"

/// The embedding of plain AD's tokens as one autograd operation on our own GPU kernels. The plain operators
/// of PostNormAd and PreNormAd define the correct results.
namespace adtrain::kernels {

/// The parameters of the embedding in bf16 or fp16; they are consecutive in the model, in this order.
struct EmbeddingParameters {
  at::Tensor context_weight, context_bias;
  /// (types, width); the first row is a transition's type. Undefined where the network has neither types nor
  /// positions.
  at::Tensor types = {};
  at::Tensor query_states;
  at::Tensor positions = {};
};

/// Columns of a batch on the GPU, dense or not: int32 (B, L, 2), int32 (B, L), fp32 (B, L), int32 (B, L, 2).
struct TransitionColumns {
  at::Tensor states, actions, rewards, next_states;
};

/// Transitions -> the first block's input (B, tokens, width): the context's transitions, then the queries.
/// The parameters' gradients are added to `main_gradients` if it is not null; else autograd gets them.
at::Tensor fused_embedding(const TransitionColumns& transitions, const TokenShape& shape,
                           const EmbeddingParameters& parameters, MainGradients* main_gradients);

/// Whether x is the result of fused_embedding, and its backward pass is to come. Until then all that its
/// kernel reads and writes is kept.
bool is_fused_embedding(const at::Tensor& x);

}  // namespace adtrain::kernels
