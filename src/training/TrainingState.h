#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

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

  /// Whether all parameters and the optimizer's moments that this rank has are finite numbers: one flag,
  /// computed on the device and read back here. Synchronises with the device.
  bool finite() const;
  /// `origin` is added to the manifest: what a reader of the checkpoint needs to know besides the progress.
  /// Frozen parameters have no moments; the manifest names them.
  /// The tensors are those of the model and the optimizer, which the next step changes; where the optimizer
  /// is sharded its moments are copies. There it is collective, and rank 0 alone gets the tensors, which are
  /// whole.
  Snapshot snapshot(nlohmann::json origin);
  /// Moments of parameters that were frozen when the snapshot was taken, and train now, begin at 0; those of
  /// parameters that are frozen now are left out. Returns a sentence for each, for the log. Throws
  /// CheckpointError where the snapshot lacks anything else or is of another model. broadcast() is to follow,
  /// which also deals out the moments of a sharded optimizer.
  std::vector<std::string> restore(const Snapshot& snapshot);
  /// All ranks get rank 0's state. Collective.
  void broadcast(Communicator& communicator);

 private:
  /// The optimizer's moments as views by parameter, and the loss scale. The tensors share their memory.
  std::vector<NamedTensor> tensors_beside_the_model(const Optimizer::Moments& moments) const;
  /// Of a snapshot whose frozen parameters are these.
  std::vector<std::string> changes_of_frozen(const std::set<std::string>& frozen_before) const;
  void broadcast_moments(Communicator& communicator);

  AlgorithmDistillation& model_;
  Optimizer& optimizer_;
  LossScale* loss_scale_;
  Optimizer::Moments restored_;  ///< rank 0's, whole, until a sharded optimizer's ranks have their share
};

}  // namespace adtrain
