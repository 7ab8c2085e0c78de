#include "model/TransitionTokens.h"

#include <ATen/ATen.h>

namespace adtrain {

at::Tensor transition_features(const Batch& batch, const ModelShape& shape) {
  const at::Tensor choices = at::arange(shape.num_actions, batch.actions.options());
  const at::Tensor one_hot = batch.actions.unsqueeze(-1).eq(choices);
  return at::cat({batch.states.to(at::kFloat), one_hot.to(at::kFloat), batch.rewards.unsqueeze(-1),
                  batch.next_states.to(at::kFloat)},
                 -1);
}

at::Tensor state_index(const at::Tensor& states, const ModelShape& shape) {
  return states.select(-1, 0) * shape.grid_size + states.select(-1, 1);
}

}  // namespace adtrain
