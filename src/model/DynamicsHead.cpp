#include "model/DynamicsHead.h"

#include <ATen/ATen.h>

namespace adtrain {
namespace {

constexpr int64_t kRewards = 2;  ///< none, and some

at::Tensor summed_cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), targets.flatten(), /*weight=*/{},
                                at::Reduction::Sum);
}

}  // namespace

DynamicsHead::DynamicsHead(ParameterFactory& factory, const ModelOptions& options, const ModelShape& shape) {
  const int64_t inner = 4 * options.tf_n_embd;
  hidden_ = default_linear(factory, "pred_dynamics.hidden", options.tf_n_embd, inner);
  action_ = embedding(factory, "pred_dynamics.action", shape.num_actions, inner);
  rewarded_ = default_linear(factory, "pred_dynamics.rewarded", inner, kRewards);
  next_state_ = default_linear(factory, "pred_dynamics.next_state", inner, shape.states());
}

at::Tensor DynamicsHead::loss(const at::Tensor& queries, const Targets& targets) const {
  const Outcomes outcomes = of(queries, targets.actions);
  return summed_cross_entropy(outcomes.rewarded, targets.rewarded) +
         summed_cross_entropy(outcomes.next_states, targets.next_states);
}

DynamicsHead::Outcomes DynamicsHead::of(const at::Tensor& queries, const at::Tensor& actions) const {
  return from(hidden_(queries), action_(actions));
}

DynamicsHead::Outcomes DynamicsHead::of_all_actions(const at::Tensor& queries) const {
  return from(hidden_(queries).unsqueeze(-2), action_.weight);
}

DynamicsHead::Outcomes DynamicsHead::from(const at::Tensor& state, const at::Tensor& action) const {
  const at::Tensor z = at::gelu(state + action);
  return {rewarded_(z), next_state_(z)};
}

}  // namespace adtrain
