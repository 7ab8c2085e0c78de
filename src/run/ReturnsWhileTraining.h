#pragma once

#include <functional>
#include <optional>
#include <string>

#include "collectives/Communicator.h"
#include "environments/TaskSplit.h"
#include "evaluation/EvaluationFolder.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/InContextEvaluation.h"
#include "evaluation/Rollouts.h"
#include "model/AlgorithmDistillation.h"
#include "run/RunConfig.h"
#include "training/ReturnMeter.h"

namespace adtrain {

/// Measures as `adtrain evaluate` does: on a network of its own (see evaluated_type), which takes the weights
/// that are being trained each time and is discarded again. So the figures are those of that command for a
/// checkpoint of the same step, and training's network, kernels and random numbers are not touched.
class ReturnsWhileTraining : public ReturnMeter {
 public:
  /// Throws Error (kOutOfMemory), which says what to change, where memory does not suffice for it.
  std::optional<ReturnFigures> measure() final;

 protected:
  /// Borrows all three.
  ReturnsWhileTraining(const RunConfig& config, AlgorithmDistillation& trained, Communicator& communicator);

  /// What a network is measured in.
  struct Play {
    TaskSplit split;
    std::function<Rollouts(const EvaluationOptions&)> rollouts;
    EvaluationOrigin origin;  ///< of no checkpoint
  };
  /// The figures of this network. Collective.
  virtual std::optional<ReturnFigures> measured_by(AlgorithmDistillation& model) = 0;
  /// The figures of both sides of the split, as far as they have tasks; nothing where a signal came.
  /// `failed` is called on all ranks where a worker's environments fail on any: InContextEvaluation::Keep.
  /// Collective.
  std::optional<ReturnFigures> figures_of(const Play& play, const std::function<void()>& failed = {}) const;
  /// Throws ConfigError where keep_best has no held-out tasks to compare checkpoints by.
  void expect_held_out(const TaskSplit& split) const;

  const RunConfig& config_;
  AlgorithmDistillation& trained_;
  Communicator& communicator_;

 private:
  std::optional<ContextReturns> returns_of(const Play& play, const EvaluationOptions& options,
                                           const std::function<void()>& failed) const;
};

}  // namespace adtrain
