#pragma once

#include <optional>

#include "ScriptedPolicies.h"
#include "collectives/Communicator.h"
#include "evaluation/InContextEvaluation.h"

namespace adtrain {

/// 3 tasks × 7 repeats in groups of 4 at most: 6 groups, which 2 ranks share evenly and 4 ranks do not. Made
/// the same way by the test and by the ranks that it starts.
inline std::optional<InContextReturns> small_evaluation(Communicator& communicator,
                                                        const InContextEvaluation::Progress& progress = {}) {
  const TaskFamily family = TaskFamily::of(EnvironmentOptions{});
  EvaluationOptions options;
  options.eval_episodes = 3;
  options.eval_repeats = 7;
  options.eval_batch = 4;
  ModelOptions model;
  model.n_transit = 25;
  return InContextEvaluation({40, 31, 49}, options)
      .measure(Rollouts::stepwise(hash_policy, family, model, options), communicator, progress);
}

/// The returns of three of its trials whose network, with random weights, plans.
inline at::Tensor planned_evaluation(Communicator& communicator) {
  const TaskFamily family = TaskFamily::of(EnvironmentOptions{});
  EvaluationOptions options;
  options.eval_episodes = 2;
  options.eval_batch = 1;
  options.planning_horizon = 3;
  ModelOptions model;
  model.tf_n_layer = 1;
  model.n_transit = 12;
  model.dynamics = true;
  const auto network = AlgorithmDistillation::create(model, ModelShape{}, /*seed=*/3);
  const Rollouts rollouts = Rollouts::of(*network, family, options, /*captures=*/false);
  return InContextEvaluation({40, 31, 49}, options).measure(rollouts, communicator)->returns;
}

}  // namespace adtrain
