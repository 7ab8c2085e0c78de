#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "environments/TaskFamily.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/Predictor.h"
#include "evaluation/Trial.h"
#include "model/AlgorithmDistillation.h"

namespace adtrain {

/// Runs the next episode of every trial of a group; returns what each earned. Throws NonFiniteError where the
/// model's logits are.
using RunEpisode = std::function<std::vector<float>()>;

/// How the trials of an evaluation are rolled out.
struct Rollouts {
  /// Begins with empty contexts. What it returns is independent of other groups.
  std::function<RunEpisode(std::span<const Trial>)> begin;
  /// Where environments and model are, and why, for the start of an evaluation.
  std::string place;

  /// Step by step: environments and contexts on the CPU, which ask `predict`. Borrows `family`.
  static Rollouts stepwise(const Predictor& predict, const TaskFamily& family, const ModelOptions& model,
                           const EvaluationOptions& options);
  /// On the model's GPU, where it is on one and the rollout kernel knows its shape; else stepwise. The
  /// weights are those of now, in the kernel. Borrows both.
  static Rollouts of(AlgorithmDistillation& model, const TaskFamily& family,
                     const EvaluationOptions& options);
};

}  // namespace adtrain
