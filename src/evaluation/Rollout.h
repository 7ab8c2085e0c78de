#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "environments/EnvironmentBatch.h"
#include "environments/TaskFamily.h"
#include "evaluation/ActionChooser.h"
#include "evaluation/Context.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/Trial.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// The in-context protocol: trials run in lock-step, each from an empty context that persists across its
/// episodes, with frozen weights. A trial learns through its context alone.
class Rollout {
 public:
  Rollout(const TaskFamily& family, std::span<const Trial> trials, const ModelOptions& model,
          const EvaluationOptions& options);

  /// Runs every trial's next episode; returns each episode's return. Throws NonFiniteError where the model's
  /// logits are not finite.
  std::vector<float> run_episode(const Predictor& predict);

 private:
  void run_step(const Predictor& predict);

  EnvironmentBatch environments_;
  std::unique_ptr<Context> context_;
  ActionChooser chooser_;
  bool terminal_observation_;
  std::vector<int32_t> states_;  ///< (n, 2): the states in which the actions are chosen
};

}  // namespace adtrain
