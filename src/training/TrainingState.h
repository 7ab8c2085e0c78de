#pragma once

#include <cstdint>

#include "checkpoint/CheckpointStore.h"
#include "collectives/Communicator.h"
#include "model/AlgorithmDistillation.h"
#include "training/Optimizer.h"

namespace adtrain {

/// How far a run has come. It needs no random states: sample order and dropout are functions of (seed,
/// position).
struct TrainingProgress {
  int64_t step = 0;           ///< optimizer steps taken
  int64_t samples_drawn = 0;  ///< cursor in the global sample order
};

/// All of a run's training state: what a checkpoint holds, and what resuming restores.
class TrainingState {
 public:
  /// Borrows all; `loss_scale` is null where the run has none.
  TrainingState(AlgorithmDistillation& model, Optimizer& optimizer, LossScale* loss_scale = nullptr)
      : model_(model), optimizer_(optimizer), loss_scale_(loss_scale) {}

  TrainingProgress progress;

  /// Whether all parameters and the optimizer's moments are finite numbers: one flag, computed on the device
  /// and read back here. Synchronises with the device.
  bool finite() const;
  /// `origin` is added to the manifest: what a reader of the checkpoint needs to know besides the progress.
  Snapshot snapshot(nlohmann::json origin) const;
  /// Throws CheckpointError where the snapshot lacks anything or is of another model.
  void restore(const Snapshot& snapshot);
  /// Broadcasts rank 0's state to every rank. Collective.
  void broadcast(Communicator& communicator);

 private:
  std::vector<NamedTensor> tensors_beside_the_model() const;

  AlgorithmDistillation& model_;
  Optimizer& optimizer_;
  LossScale* loss_scale_;
};

}  // namespace adtrain
