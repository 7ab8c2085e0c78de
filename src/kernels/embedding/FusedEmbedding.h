#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"
#include "kernels/embedding/TokenEmbedding.h"

/// The embedding of plain AD's tokens as one operation of autograd by our own GPU kernels. The plain paths of
/// PostNormAd and PreNormAd are the definition of what is right.
namespace adtrain::kernels {

/// Of the embedding, bf16, neighbours in the model in this order.
struct EmbeddingParameters {
  at::Tensor context_weight, context_bias;
  /// (types, width), of which the first is a transition's; undefined where the network has none, and no
  /// positions.
  at::Tensor types = {};
  at::Tensor query_states;
  at::Tensor positions = {};
};

/// Columns of a batch, dense or not, on the GPU: int32 (B, L, 2), int32 (B, L), fp32 (B, L), int32 (B, L, 2).
struct TransitionColumns {
  at::Tensor states, actions, rewards, next_states;
};

/// Transitions -> the first block's input (B, tokens, width): the context's transitions, then the queries.
/// The parameters' gradients go to `main_gradients` if there is one.
at::Tensor fused_embedding(const TransitionColumns& transitions, const TokenShape& shape,
                           const EmbeddingParameters& parameters, MainGradients* main_gradients);

}  // namespace adtrain::kernels
