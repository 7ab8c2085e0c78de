#pragma once

#include <memory>
#include <string>

#include "data/BatchAssembler.h"
#include "model/AlgorithmDistillation.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "run/TrainingHistories.h"
#include "telemetry/Console.h"

namespace adtrain {

/// What the ranks of a training run work on: histories, the windows that are cut from them, and the network
/// on this rank's device, some of it frozen as the configuration says. libtorch's arithmetic (tf32,
/// deterministic algorithms) is set as the configuration says, for the whole process.
class TrainingInputs {
 public:
  /// The network's weights: its first ones, or whatever the memory holds, where a checkpoint's follow.
  enum class Weights { kFirst, kFollow };

  /// Reads the histories and makes the network. Collective: the ranks compare their histories. Throws as
  /// TrainingHistories::of and freeze() do, and EnvironmentError where ranks have other histories.
  TrainingInputs(const RunConfig& config, const Ranks& ranks, Console& console,
                 TrainingHistories::OwnTasks own, Weights weights = Weights::kFirst);

  const TrainingHistories& histories() const { return *histories_; }
  const BatchAssembler& windows() const { return histories_->windows(); }
  /// Null where no held-out loss is measured.
  const BatchAssembler* held_out_windows() const { return histories_->held_out_windows(); }
  AlgorithmDistillation& model() const { return *model_; }

 private:
  std::unique_ptr<TrainingHistories> histories_;
  std::unique_ptr<AlgorithmDistillation> model_;
};

}  // namespace adtrain
