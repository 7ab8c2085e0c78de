#pragma once

#include <cstdint>

#include "data/BatchSource.h"
#include "distributed/GradientReducer.h"
#include "model/AlgorithmDistillation.h"
#include "training/LossSums.h"
#include "training/Optimizer.h"
#include "training/TrainingOptions.h"

namespace adtrain {

/// One optimizer step of one rank: forward and backward of its micro-batches, the gradient's all-reduce
/// (which overlaps with the backward of the last micro-batch), clipping and the update. The loss is
/// normalised over the global batch, so ranks and accumulation change nothing but the order of additions.
class TrainStep {
 public:
  /// Borrows all of them; `share` says how large the global batch is.
  TrainStep(AlgorithmDistillation& model, GradientReducer& reducer, Optimizer& optimizer, BatchShare share,
            const TrainingOptions& options);

  /// Optimizer step `step` of the run. Dropout is a function of (seed, rank, step, micro-step), so that a
  /// resumed run draws what the uninterrupted one would have drawn.
  void run(BatchSource& batches, int64_t step, double learning_rate);

  /// This rank's losses since they were last taken.
  LossSums& losses() { return losses_; }

 private:
  AlgorithmDistillation& model_;
  GradientReducer& reducer_;
  Optimizer& optimizer_;
  BatchShare share_;
  LossPositions loss_positions_;
  uint64_t dropout_seed_;
  LossSums losses_;
};

}  // namespace adtrain
