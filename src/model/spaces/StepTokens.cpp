#include "model/spaces/StepTokens.h"

#include <ATen/ATen.h>

#include "model/spaces/SpaceFit.h"

namespace adtrain {
namespace {

constexpr int64_t kRewardFeatures = 2;  ///< vintix's

bool is_vintix(const ModelOptions& options) {
  return options.block() == TransformerBlock::kVintix;
}

/// (B, T, …) one step later: `before` (B, …), then all of `values` but the last.
at::Tensor one_step_later(const at::Tensor& before, const at::Tensor& values) {
  return at::cat({before.unsqueeze(1), values.narrow(1, 0, values.size(1) - 1)}, 1);
}

}  // namespace

int64_t StepTokens::features_of(const ModelOptions& options) {
  return is_vintix(options) ? (options.tf_n_embd - kRewardFeatures) / 2 : kFeatures;
}

StepTokens::StepTokens(ParameterFactory& factory, const ModelOptions& options, const TaskSpaces& spaces,
                       const Initialisation& initial)
    : observation_(ObservationEncoder::create(pieces_for(options, spaces).observation_encoder, factory,
                                              spaces, features_of(options), initial)),
      action_(factory, options, spaces.action, features_of(options), initial) {
  const int64_t features = features_of(options), of_reward = is_vintix(options) ? kRewardFeatures : 1;
  if (is_vintix(options)) embed_reward_ = initial.outer_linear(factory, "reward.linear", 1, of_reward);
  if (options.first_step == FirstStep::kLearned) {
    first_action_ = initial.first_step(factory, "first_action", features);
    first_reward_ = initial.first_step(factory, "first_reward", of_reward);
  }
  if (!is_vintix(options))
    embed_token_ = initial.outer_linear(factory, "embed_token", 2 * features + of_reward, options.tf_n_embd);
}

at::Tensor StepTokens::operator()(const Batch& batch) const {
  const at::Tensor observation = (*observation_)(batch);
  at::Tensor action = action_(one_step_later(batch.before_action, batch.actions));
  at::Tensor reward =
      one_step_later(batch.before_reward, batch.rewards).unsqueeze(-1).to(observation.scalar_type());
  if (embed_reward_.weight.defined()) reward = at::leaky_relu(embed_reward_(reward));
  if (first_action_.defined()) {
    const at::Tensor begins = batch.begins.to(at::kBool).unsqueeze(-1);
    action = at::where(begins, first_action_, action);
    reward = at::where(begins, first_reward_, reward);
  }
  if (!embed_token_.weight.defined()) return at::cat({observation, action, reward}, -1);
  return embed_token_(at::cat({action, reward, observation}, -1));
}

}  // namespace adtrain
