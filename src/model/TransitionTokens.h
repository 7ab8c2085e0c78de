#pragma once

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "kernels/embedding/TokenEmbedding.h"
#include "model/LossPositions.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// (B, T, 2 + num_actions + 1 + 2) of floating-point `type`: state, one-hot action, reward and next state of
/// every transition.
at::Tensor transition_features(const Batch& batch, const ModelShape& shape, at::ScalarType type);

/// int32 (…): x · grid_size + y of states (…, 2).
at::Tensor state_index(const at::Tensor& states, const ModelShape& shape);

/// How plain rows become tokens of `width` features where the loss reads these positions.
kernels::TokenShape token_shape(const Batch& batch, const ModelShape& shape, LossPositions positions,
                                int64_t width);

}  // namespace adtrain
