#include "model/PreviousTokens.h"

#include <ATen/ATen.h>

namespace adtrain {
namespace {

constexpr int64_t kCoordinates = 2;
constexpr double kFirstStepDeviation = 0.02;

/// (B, T, …): `first` before all of `values` (B, T, …) but the last.
at::Tensor one_step_later(const at::Tensor& first, const at::Tensor& values) {
  return at::cat({first, values.narrow(1, 0, values.size(1) - 1)}, 1);
}

}  // namespace

PreviousTokens::PreviousTokens(ParameterFactory& factory, const ModelOptions& options,
                               const ModelShape& shape, const Initialisation& initial)
    : grid_size_(shape.grid_size),
      embed_coordinate_(
          initial.outer_embedding(factory, "embed_coordinate", kCoordinates * shape.grid_size, kFeatures)),
      embed_state_(initial.outer_linear(factory, "embed_state", kCoordinates * kFeatures, kFeatures)),
      embed_action_(initial.outer_embedding(factory, "embed_action", shape.num_actions, kFeatures)) {
  if (options.first_step == FirstStep::kLearned) {
    first_action_ = factory.normal("first_action", {kFeatures}, kFirstStepDeviation);
    first_reward_ = factory.normal("first_reward", {1}, kFirstStepDeviation);
  }
  embed_token_ = initial.outer_linear(factory, "embed_token", 2 * kFeatures + 1, options.tf_n_embd);
}

at::Tensor PreviousTokens::operator()(const Batch& batch) const {
  return embed_token_(at::cat({previous_actions(batch), previous_rewards(batch), states(batch)}, -1));
}

at::Tensor PreviousTokens::previous_actions(const Batch& batch) const {
  if (!first_action_.defined())
    return embed_action_(
        one_step_later(at::zeros({batch.size(), 1}, batch.actions.options()), batch.actions));
  const at::Tensor first = first_action_.expand({batch.size(), 1, kFeatures});
  return at::cat({first, embed_action_(batch.actions.narrow(1, 0, batch.actions.size(1) - 1))}, 1);
}

at::Tensor PreviousTokens::previous_rewards(const Batch& batch) const {
  const at::Tensor rewards = batch.rewards.unsqueeze(-1).to(embed_token_.weight.scalar_type());
  const at::Tensor first = first_reward_.defined() ? first_reward_.expand({batch.size(), 1, 1})
                                                   : at::zeros({batch.size(), 1, 1}, rewards.options());
  return one_step_later(first, rewards);
}

at::Tensor PreviousTokens::states(const Batch& batch) const {
  const at::Tensor first_rows = at::arange(kCoordinates, batch.states.options()) * grid_size_;
  return embed_state_(embed_coordinate_(batch.states + first_rows).flatten(2));
}

}  // namespace adtrain
