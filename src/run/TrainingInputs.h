#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/BatchAssembler.h"
#include "data/HistorySet.h"
#include "model/AlgorithmDistillation.h"
#include "run/Histories.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"

namespace adtrain {

/// What the ranks of a training run work on: histories, the windows that are cut from them, and the network
/// with its first values on this rank's device. libtorch's arithmetic (tf32, deterministic algorithms) is set
/// as the configuration says, for the whole process.
class TrainingInputs {
 public:
  /// Reads the histories and makes the network. Collective: the ranks compare their histories. Throws as
  /// TrainingTasks and HistorySet do, and EnvironmentError where ranks have other histories.
  TrainingInputs(const RunConfig& config, const Ranks& ranks);

  const HistorySet& histories() const { return histories_; }
  /// Which of the split's tasks the file lacks, as a sentence; "" for none.
  const std::string& missing_tasks() const { return tasks_.missing; }
  const BatchAssembler& windows() const { return windows_; }
  /// Null where no held-out loss is measured.
  const BatchAssembler* held_out_windows() const { return held_out_windows_ ? &*held_out_windows_ : nullptr; }
  AlgorithmDistillation& model() const { return *model_; }

 private:
  TrainingTasks tasks_;
  HistorySet histories_;
  BatchAssembler windows_;
  std::optional<HistorySet> held_out_;
  std::optional<BatchAssembler> held_out_windows_;
  std::unique_ptr<AlgorithmDistillation> model_;
};

}  // namespace adtrain
