#pragma once

#include <optional>

#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "run/ReturnsWhileTraining.h"

namespace adtrain {

/// In-context returns while training in the environments of a family of ours.
class FamilyReturns final : public ReturnsWhileTraining {
 public:
  /// Borrows all three. Throws ConfigError where keep_best has no held-out tasks to compare checkpoints by.
  FamilyReturns(const RunConfig& config, AlgorithmDistillation& trained, Communicator& communicator);

 private:
  std::optional<ReturnFigures> measured_by(AlgorithmDistillation& model) override;

  TaskFamily family_;
  TaskSplit split_;
};

}  // namespace adtrain
