#include "kernels/embedding/NewestTokenTables.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/MatrixOperation.h"
#include "kernels/embedding/NewestTokenKernel.h"

namespace adtrain::kernels {

bool newest_tokens_fit(at::ScalarType type, int64_t width) {
  return type != at::kFloat && width % kVectorWidth == 0;
}

at::Tensor newest_tokens(const TransitionColumns& transitions, const NewestTokenTables& tables,
                         at::ScalarType type) {
  const at::Tensor states = transitions.states.contiguous(), actions = transitions.actions.contiguous(),
                   rewards = transitions.rewards.contiguous();
  TORCH_CHECK(actions.size(1) > 1, "the first step of a row has no action before it");
  const c10::cuda::CUDAGuard on_device(tables.reward.device());
  const at::Tensor tokens =
      at::empty({actions.size(0), 1, tables.reward.size(0)}, tables.reward.options().dtype(type));
  sum_newest_tokens({.shape = shape_of(tokens),
                     .transitions = static_cast<int>(actions.size(1)),
                     .states = states.const_data_ptr<int32_t>(),
                     .actions = actions.const_data_ptr<int32_t>(),
                     .rewards = rewards.const_data_ptr<float>(),
                     .of_action = tables.actions.const_data_ptr<float>(),
                     .of_x = tables.x.const_data_ptr<float>(),
                     .of_y = tables.y.const_data_ptr<float>(),
                     .of_reward = tables.reward.const_data_ptr<float>(),
                     .tokens = vectors_of(tokens)},
                    current_stream());
  return tokens;
}

}  // namespace adtrain::kernels
