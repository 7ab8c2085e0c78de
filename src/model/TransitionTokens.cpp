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

}  // namespace adtrain
