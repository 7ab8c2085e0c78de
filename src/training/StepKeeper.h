#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/CheckpointStore.h"
#include "training/ReturnMeter.h"

namespace adtrain {

/// Saves the steps of a run to the disk. Only rank 0's Trainer calls it. save(), measured() and wants_step()
/// throw ConfigError where the run's folder no longer belongs to this run, and EnvironmentError where it was
/// moved or deleted.
class StepKeeper {
 public:
  virtual ~StepKeeper() = default;

  /// Saves a step, or warns that it could not be saved. Training continues after that, unless it ends with
  /// this step (`leaving`). The snapshot's tensors change with the next step: none may be kept.
  virtual void save(const Snapshot& snapshot, bool leaving) = 0;

  /// Called after the save of a step whose in-context returns were measured then.
  virtual void measured(int64_t step, const ReturnFigures& figures) = 0;

  /// Called after each step: whether to retry a failed save now, with this step.
  virtual bool wants_step() = 0;

  /// The newest step that is safe on the disk; none before the first one.
  virtual std::optional<int64_t> safe_step() const = 0;
};

}  // namespace adtrain
