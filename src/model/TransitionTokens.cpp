#include "model/TransitionTokens.h"

#include <ATen/ATen.h>

namespace adtrain {

at::Tensor transition_features(const Batch& batch, const ModelShape& shape, at::ScalarType type) {
  const at::Tensor choices = at::arange(shape.num_actions, batch.actions.options());
  const at::Tensor one_hot = batch.actions.unsqueeze(-1).eq(choices);
  return at::cat({batch.states.to(type), one_hot.to(type), batch.rewards.unsqueeze(-1).to(type),
                  batch.next_states.to(type)},
                 -1);
}

at::Tensor state_index(const at::Tensor& states, const ModelShape& shape) {
  return states.select(-1, 0) * shape.grid_size + states.select(-1, 1);
}

kernels::TokenShape token_shape(const Batch& batch, const ModelShape& shape, LossPositions positions,
                                int64_t width) {
  const auto length = static_cast<int>(batch.states.size(1));
  const bool all = positions == LossPositions::kAll;
  return {.sequences = static_cast<int>(batch.size()),
          .transitions = length,
          .context = all ? length : length - 1,
          .queries = all ? length : 1,
          .width = static_cast<int>(width),
          .actions = static_cast<int>(shape.num_actions),
          .grid_size = static_cast<int>(shape.grid_size)};
}

}  // namespace adtrain
