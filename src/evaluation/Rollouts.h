#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "environments/TaskFamily.h"
#include "environments/worker/WorkerPool.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/Planner.h"
#include "evaluation/Predictor.h"
#include "evaluation/Trial.h"
#include "evaluation/spaces/SpaceContext.h"
#include "model/AlgorithmDistillation.h"

namespace adtrain {

/// Runs the next episode of every trial of a group; returns each episode's return. Throws NonFiniteError
/// where the model's logits are not finite.
using RunEpisode = std::function<std::vector<float>()>;

/// How the trials of an evaluation are rolled out.
struct Rollouts {
  /// Begins with empty contexts. The returned function is independent of other groups.
  std::function<RunEpisode(std::span<const Trial>)> begin;
  /// Where environments and model are, and why; printed at the start of an evaluation.
  std::string place;

  /// Steps environments and contexts on the CPU, which call `predict`, or keep keys and values, or `plan`.
  /// Borrows `family`.
  static Rollouts stepwise(const Predictor& predict, const TaskFamily& family, const ModelOptions& model,
                           const EvaluationOptions& options, const RollingPredictors& kept = {},
                           const MakePlanner& plan = {});
  /// What a model is to the environments of worker processes.
  struct Player {
    Predictor predict;
    ModelOptions model;
    ModelShape shape;  ///< of a model of several groups of spaces, the group that plays alone
    /// Of a model of any space: of the learners of these trials; null for none.
    std::function<SpaceScale(std::span<const Trial>)> scale = nullptr;
    RollingPredictors kept = {};  ///< how contexts keep keys and values
  };
  /// Plays in the environments of worker processes. Borrows `workers`.
  static Rollouts in_workers(const Player& player, WorkerPool& workers, const EvaluationOptions& options);
  /// The same by uniformly random actions.
  static Rollouts at_random(WorkerPool& workers, const EvaluationOptions& options);
  /// With planning_horizon stepwise, planning on the model's device. Else
  /// runs on the model's GPU, where it is on one and the rollout kernel supports its shape; else stepwise,
  /// on a GPU with keys and values that are kept while contexts grow. Stepwise in any case where
  /// `options.eval_context` has rows slide. The kernel uses a copy of the present weights. `captures`: see
  /// rolling_predictors_of. Borrows both.
  static Rollouts of(AlgorithmDistillation& model, const TaskFamily& family, const EvaluationOptions& options,
                     bool captures);
};

}  // namespace adtrain
