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
  return tokens(previous_actions(batch), previous_rewards(batch), batch.states);
}

at::Tensor PreviousTokens::newest(const Batch& batch) const {
  const int64_t step = batch.actions.size(1) - 1;
  if (step == 0) return (*this)(batch);
  return tokens(embed_action_(batch.actions.narrow(1, step - 1, 1)),
                features_of(batch.rewards.narrow(1, step - 1, 1)), batch.states.narrow(1, step, 1));
}

std::optional<kernels::NewestTokenTables> PreviousTokens::newest_tables() const {
  for (const Linear* linear : {&embed_state_, &embed_token_})
    if (linear->is_quantised() && !linear->quantised->is_weight_only(embed_token_.bias.scalar_type()))
      return std::nullopt;
  const auto exact = [](const at::Tensor& parameter) { return parameter.to(at::kFloat); };
  // Columns of actions, of the reward, and of states, whose columns in turn are of x and of y.
  const at::Tensor of_token = exact(embed_token_.values()),
                   of_state = of_token.narrow(1, kFeatures + 1, kFeatures);
  const at::Tensor of_coordinates = at::mm(of_state, exact(embed_state_.values()));
  const at::Tensor bias = at::addmv(exact(embed_token_.bias), of_state, exact(embed_state_.bias));
  const auto of_coordinate = [&](int64_t number) {
    const at::Tensor rows = embed_coordinate_.weight.narrow(0, number * grid_size_, grid_size_);
    return at::mm(exact(rows), of_coordinates.narrow(1, number * kFeatures, kFeatures).t());
  };
  return kernels::NewestTokenTables{
      .actions = at::mm(exact(embed_action_.weight), of_token.narrow(1, 0, kFeatures).t()),
      .x = of_coordinate(0) + bias,
      .y = of_coordinate(1),
      .reward = of_token.select(1, kFeatures).contiguous()};
}

at::Tensor PreviousTokens::tokens(const at::Tensor& actions, const at::Tensor& rewards,
                                  const at::Tensor& states) const {
  const at::Tensor first_rows = at::arange(0, kCoordinates * grid_size_, grid_size_, states.options());
  const at::Tensor coordinates = embed_coordinate_(states + first_rows).flatten(2);
  return embed_token_(at::cat({actions, rewards, embed_state_(coordinates)}, -1));
}

at::Tensor PreviousTokens::features_of(const at::Tensor& rewards) const {
  return rewards.unsqueeze(-1).to(embed_token_.weight.scalar_type());
}

at::Tensor PreviousTokens::previous_actions(const Batch& batch) const {
  if (!first_action_.defined())
    return embed_action_(
        one_step_later(at::zeros({batch.size(), 1}, batch.actions.options()), batch.actions));
  const at::Tensor first = first_action_.expand({batch.size(), 1, kFeatures});
  return at::cat({first, embed_action_(batch.actions.narrow(1, 0, batch.actions.size(1) - 1))}, 1);
}

at::Tensor PreviousTokens::previous_rewards(const Batch& batch) const {
  const at::Tensor rewards = features_of(batch.rewards);
  const at::Tensor first = first_reward_.defined() ? first_reward_.expand({batch.size(), 1, 1})
                                                   : at::zeros({batch.size(), 1, 1}, rewards.options());
  return one_step_later(first, rewards);
}

}  // namespace adtrain
