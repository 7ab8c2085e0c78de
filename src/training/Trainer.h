#pragma once

#include <cstdint>
#include <limits>

#include "checkpoint/CheckpointStore.h"
#include "data/BatchAssembler.h"
#include "data/BatchSource.h"
#include "distributed/Communicator.h"
#include "distributed/GradientReducer.h"
#include "distributed/StopRequest.h"
#include "model/AlgorithmDistillation.h"
#include "training/HeldOutLoss.h"
#include "training/LearningRateSchedule.h"
#include "training/Optimizer.h"
#include "training/TrainStep.h"
#include "training/TrainingLog.h"
#include "training/TrainingOptions.h"
#include "training/TrainingState.h"

namespace adtrain {

/// Trains a model data-parallel: every rank has one of these, in step with the others.
class Trainer {
 public:
  /// What training works on; all borrowed.
  struct Parts {
    AlgorithmDistillation& model;
    Communicator& communicator;
    const BatchAssembler& training_windows;
    const BatchAssembler* held_out_windows;  ///< null: no held-out loss
    CheckpointStore& checkpoints;            ///< used by rank 0 alone
    TrainingLog& log;                        ///< silent on other ranks
    nlohmann::json origin;                   ///< joins each checkpoint's manifest
  };
  Trainer(const TrainingOptions& options, const ReducerOptions& reducer, int64_t data_workers, Parts parts);

  /// Continues from a checkpoint, which rank 0 gives (null on the others, or on all for a new run).
  /// Collective.
  void start_from(const Snapshot* snapshot);

  enum class End { kFinished, kStopped };
  /// Trains up to the last step of the run, to `stop_after` steps, or until any rank is asked to stop; in
  /// each case there is a checkpoint of the last step. Collective. Throws NonFiniteError, PeerLostError,
  /// DataError.
  End run(int64_t stop_after = std::numeric_limits<int64_t>::max());

  const TrainingProgress& progress() const { return state_.progress; }
  const BatchShare& share() const { return share_; }

 private:
  void at_boundary(BatchSource& batches, bool leaving);
  void report(BatchSource& batches);
  void save();

  TrainingOptions options_;
  Parts parts_;
  BatchShare share_;
  int64_t data_workers_;
  GradientReducer reducer_;
  Optimizer optimizer_;
  TrainingState state_;
  TrainStep step_;
  LearningRateSchedule schedule_;
  int64_t saved_step_ = -1;
};

}  // namespace adtrain
