#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/CheckpointStore.h"

namespace adtrain {

/// Who keeps the steps of a run on the disk. Rank 0's Trainer alone speaks to it.
class StepKeeper {
 public:
  virtual ~StepKeeper() = default;

  /// Saves a step, or warns that it could not be saved. Training goes on after that, unless it is `leaving`
  /// with this step.
  virtual void save(const Snapshot& snapshot, bool leaving) = 0;

  /// Asked after each step: whether a step that could not be saved is to be tried again now, with this step.
  /// Throws ConfigError where the run's folder does not belong to this run any more.
  virtual bool wants_step() = 0;

  /// The newest step that is safe on the disk; none before the first one.
  virtual std::optional<int64_t> safe_step() const = 0;
};

}  // namespace adtrain
