#pragma once

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// (B, T, 2 + num_actions + 1 + 2) of floating-point `type`: state, one-hot action, reward and next state of
/// every transition.
at::Tensor transition_features(const Batch& batch, const ModelShape& shape, at::ScalarType type);

/// int32 (…): x · grid_size + y of states (…, 2).
at::Tensor state_index(const at::Tensor& states, const ModelShape& shape);

}  // namespace adtrain
