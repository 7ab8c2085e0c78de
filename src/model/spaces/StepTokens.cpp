#include "model/spaces/StepTokens.h"

#include <utility>

#include <ATen/ATen.h>

#include "model/spaces/SpaceFit.h"

namespace adtrain {
namespace {

constexpr int64_t kRewardFeatures = 2;  ///< vintix's

bool is_vintix(const ModelOptions& options) {
  return options.block() == TransformerBlock::kVintix;
}

/// (B, T, …) one step later: `before` (B, …), then all of `values` but the last. Of packed rows `before` is
/// that already.
at::Tensor one_step_later(const at::Tensor& before, const at::Tensor& values) {
  if (before.dim() == values.dim()) return before;
  return at::cat({before.unsqueeze(1), values.narrow(1, 0, values.size(1) - 1)}, 1);
}

}  // namespace

int64_t StepTokens::features_of(const ModelOptions& options) {
  return is_vintix(options) ? (options.tf_n_embd - kRewardFeatures) / 2 : kFeatures;
}

StepTokens::StepTokens(ParameterFactory& factory, const ModelOptions& options,
                       const std::vector<TaskSpaces>& spaces, const Initialisation& initial) {
  const int64_t features = features_of(options), of_reward = is_vintix(options) ? kRewardFeatures : 1;
  for (const TaskSpaces& of_group : spaces) {
    factory.begin_group(of_group.group);
    auto observation = ObservationEncoder::create(pieces_for(options, of_group).observation_encoder, factory,
                                                  of_group, features, initial);
    groups_.push_back({.observation = std::move(observation),
                       .action = ActionEncoder(factory, options, of_group.action, features, initial),
                       .first_action = {},
                       .first_reward = {}});
  }
  factory.begin_group("");
  if (is_vintix(options)) embed_reward_ = initial.outer_linear(factory, "reward.linear", 1, of_reward);
  for (size_t i = 0; options.first_step == FirstStep::kLearned && i < spaces.size(); ++i) {
    factory.begin_group(spaces[i].group);
    groups_[i].first_action = initial.first_step(factory, "first_action", features);
    groups_[i].first_reward = initial.first_step(factory, "first_reward", of_reward);
  }
  factory.begin_group("");
  if (!is_vintix(options))
    embed_token_ = initial.outer_linear(factory, "embed_token", 2 * features + of_reward, options.tf_n_embd);
}

at::Tensor StepTokens::operator()(const Batch& batch, const ObservationEncoder::Run& run) const {
  if (batch.parts.empty()) return of_group(batch, run);
  std::vector<at::Tensor> tokens;
  for (const Batch& part : batch.parts) tokens.push_back(of_group(part, run));
  return tokens.size() == 1 ? tokens.front() : at::cat(tokens, 0);
}

at::Tensor StepTokens::of_group(const Batch& batch, const ObservationEncoder::Run& run) const {
  const Group& group = groups_.at(static_cast<size_t>(batch.group));
  const at::Tensor observation = (*group.observation)(batch, run);
  at::Tensor action = group.action(one_step_later(batch.before_action, batch.actions));
  at::Tensor reward =
      one_step_later(batch.before_reward, batch.rewards).unsqueeze(-1).to(observation.scalar_type());
  if (embed_reward_.weight.defined()) reward = at::leaky_relu(embed_reward_(reward));
  if (group.first_action.defined()) {
    const at::Tensor begins = batch.begins.to(at::kBool).unsqueeze(-1);
    action = at::where(begins, group.first_action, action);
    reward = at::where(begins, group.first_reward, reward);
  }
  if (!embed_token_.weight.defined()) return at::cat({observation, action, reward}, -1);
  return embed_token_(at::cat({action, reward, observation}, -1));
}

}  // namespace adtrain
