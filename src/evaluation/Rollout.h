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

/// The in-context protocol: trials run in lock-step, each from an empty context that lasts across its
/// episodes, while the weights stay as they are. What a trial learns is in its context alone.
class Rollout {
 public:
  Rollout(const TaskFamily& family, std::span<const Trial> trials, const ModelOptions& model,
          const EvaluationOptions& options);

  /// Runs every trial's next episode; returns what each earned. Throws NonFiniteError where the model's
  /// logits are.
  std::vector<float> run_episode(const Predictor& predict);

 private:
  void run_step(const Predictor& predict);

  EnvironmentBatch environments_;
  std::unique_ptr<Context> context_;
  ActionChooser chooser_;
  bool terminal_observation_;
  std::vector<int32_t> states_;  ///< (n, 2), in which the actions are chosen
};

}  // namespace adtrain
