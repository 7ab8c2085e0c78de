#pragma once

#include <ATen/core/Tensor.h>

#include "model/Layers.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// Predicts what an action leads to, from what a network reads at a query: whether the step is rewarded, and
/// the next state.
///
///     z = GELU(W h + Embedding(action)), then Linear(z) → 2 and Linear(z) → states
///
/// h (width) is the blocks' output at the query, the state in which the action is taken; z has four times the
/// width. The idea is that of "Distilling Reinforcement Learning Algorithms for In-Context Model-Based
/// Planning" (Son et al., ICLR 2025, arXiv:2502.19009): one sequence model learns the policy and the
/// environment, from one context. There the action is a further token of the sequence. Here it comes in
/// behind the blocks, so that every action of a query is answered by one pass, and blocks run as without a
/// head.
class DynamicsHead {
 public:
  /// Its parameters' names begin with "pred_dynamics.".
  DynamicsHead(ParameterFactory& factory, const ModelOptions& options, const ModelShape& shape);

  /// What happened at queries; all int64 (B, Q).
  struct Targets {
    at::Tensor actions;  ///< that were taken
    at::Tensor rewarded;
    at::Tensor next_states;  ///< see state_index()
  };
  /// fp32 scalar: the sum over queries of the cross-entropies of `rewarded` and of the next state. queries:
  /// (B, Q, width).
  at::Tensor loss(const at::Tensor& queries, const Targets& targets) const;

  struct Outcomes {
    at::Tensor rewarded;     ///< (…, 2) logits
    at::Tensor next_states;  ///< (…, states) logits
  };
  /// Of one action each: queries (…, width), actions int64 (…).
  Outcomes of(const at::Tensor& queries, const at::Tensor& actions) const;
  /// Of all actions: queries (…, width) -> (…, num_actions, …).
  Outcomes of_all_actions(const at::Tensor& queries) const;

 private:
  Outcomes from(const at::Tensor& state, const at::Tensor& action) const;

  Linear hidden_;
  Embedding action_;
  Linear rewarded_, next_state_;
};

}  // namespace adtrain
