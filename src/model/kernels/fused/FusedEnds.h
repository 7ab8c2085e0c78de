#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "distributed/GradientSink.h"
#include "model/LossPositions.h"
#include "model/ModelOptions.h"

/// What stands before and behind the blocks of plain AD, each as one operation of autograd by our own GPU
/// kernels. The plain paths of PostNormAd and PreNormAd are the definition of what is right.
namespace adtrain::kernels {

/// Whether there are kernels for parameters of this type and width on this device.
bool fused_ends_fit(const at::Device& device, at::ScalarType type, int64_t width, const ModelShape& shape);

/// Of the embedding, bf16, neighbours in the model in this order.
struct EmbeddingParameters {
  at::Tensor context_weight, context_bias;
  at::Tensor types = {};  ///< token_type_embedding; undefined where the network has none, and no positions
  at::Tensor query_states;
  at::Tensor positions = {};
};

/// Plain rows -> the first block's input (B, tokens, width): the context's transitions, then the queries. The
/// parameters' gradients go to `sink` if there is one.
at::Tensor fused_embedding(const Batch& batch, const ModelShape& shape, LossPositions positions,
                           const EmbeddingParameters& parameters, GradientSink* sink);

/// Both on the device.
struct FusedLoss {
  at::Tensor sum;      ///< fp32 scalar: of cross-entropies
  at::Tensor correct;  ///< int64 scalar: targets that are the first of the most probable actions
};

/// encoded (B, Q, width) bf16 and the actions (B, T) of plain rows, of which the last Q are the targets.
/// `head`: weight (num_actions, width) and bias, bf16; their gradients go to `sink` if there is one.
FusedLoss fused_loss(const at::Tensor& encoded, const at::Tensor& actions,
                     const std::vector<at::Tensor>& head, double label_smoothing, GradientSink* sink);

}  // namespace adtrain::kernels
