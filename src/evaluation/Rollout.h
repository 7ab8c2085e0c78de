#pragma once

#include <memory>
#include <span>
#include <vector>

#include "environments/TaskFamily.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/Learners.h"
#include "evaluation/LockStep.h"
#include "evaluation/Planner.h"
#include "evaluation/Predictor.h"
#include "evaluation/Trial.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// The in-context protocol: trials run in lock-step, each from an empty context that persists across its
/// episodes, with frozen weights. A trial learns through its context alone.
class Rollout {
 public:
  /// In the family's own environments. `kept`, `plan`: as GridLearners take them.
  Rollout(const TaskFamily& family, std::span<const Trial> trials, const ModelOptions& model,
          const EvaluationOptions& options, const RollingPredictors& kept = {}, const MakePlanner& plan = {});
  /// Of these learners, who have the trials in order. Several parts step in turn: the model is asked for one
  /// while the environments of the others step.
  struct Part {
    std::unique_ptr<Learners> learners;
    size_t trials;
  };
  explicit Rollout(std::vector<Part> parts);

  /// Runs every trial's next episode; returns each episode's return. Throws NonFiniteError where the model's
  /// logits are not finite, and what the environments throw.
  std::vector<float> run_episode(const Predictor& predict);

 private:
  std::vector<LockStep> parts_;
};

}  // namespace adtrain
