#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "collectives/Communicator.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "evaluation/EvaluationOptions.h"
#include "model/AlgorithmDistillation.h"
#include "run/RunConfig.h"
#include "training/ReturnMeter.h"

namespace adtrain {

/// The evaluation of one side of the split (test or train) that return_interval asks for: the settings with
/// which `adtrain evaluate` gives the same figure.
EvaluationOptions return_evaluation(const RunConfig& config, const std::string& side);

/// What identifies the figures on held-out tasks, whatever the step: equal identities make them comparable.
nlohmann::ordered_json identity_of_returns(const RunConfig& config);

/// Measures as `adtrain evaluate` does: on a network of its own, in fp32, which takes the weights that are
/// being trained each time and is discarded again. So the figures are those of that command for a checkpoint
/// of the same step, and training's network, kernels and random numbers are not touched.
class ReturnsWhileTraining final : public ReturnMeter {
 public:
  /// Borrows all three. Throws ConfigError where keep_best has no held-out tasks to compare checkpoints by.
  ReturnsWhileTraining(const RunConfig& config, AlgorithmDistillation& trained, Communicator& communicator);

  /// Throws Error (kOutOfMemory), which says what to change, where memory does not suffice for it.
  std::optional<ReturnFigures> measure() override;

 private:
  std::optional<ReturnFigures> measured_by(AlgorithmDistillation& model);
  std::optional<ContextReturns> returns_of(AlgorithmDistillation& model, const std::string& side);

  const RunConfig& config_;
  AlgorithmDistillation& trained_;
  Communicator& communicator_;
  TaskFamily family_;
  TaskSplit split_;
};

}  // namespace adtrain
