#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "collectives/Communicator.h"
#include "collectives/StopRequest.h"
#include "data/BatchAssembler.h"
#include "data/BatchSource.h"
#include "memory/MemoryMeter.h"
#include "model/AlgorithmDistillation.h"
#include "parallel/GradientReducer.h"
#include "parallel/SlowRankMonitor.h"
#include "training/HeldOutLoss.h"
#include "training/LearningRateSchedule.h"
#include "training/Optimizer.h"
#include "training/ReturnMeter.h"
#include "training/StepKeeper.h"
#include "training/StepProfiler.h"
#include "training/TrainStep.h"
#include "training/TrainingLog.h"
#include "training/TrainingOptions.h"
#include "training/TrainingState.h"

namespace adtrain {

/// Trains a model data-parallel: every rank has one, in lock-step with the others.
class Trainer {
 public:
  /// What training works on; all borrowed.
  struct Parts {
    AlgorithmDistillation& model;
    Communicator& communicator;
    const BatchAssembler& training_windows;
    const BatchAssembler* held_out_windows;  ///< null: no held-out loss
    StepKeeper& keeper;                      ///< used by rank 0 alone
    TrainingLog& log;                        ///< silent on other ranks
    nlohmann::json origin;                   ///< entries for each checkpoint's manifest
    int64_t communication_bytes = 0;         ///< that the communicator takes on this rank's device
    std::filesystem::path profiles = {};     ///< folder for what profile_steps records
    ReturnMeter* returns = nullptr;          ///< null: return_interval measures nothing
  };
  /// The model must be on the communicator's device. On a GPU the current stream must not be the default one
  /// (steps are captured there), and must stay the same.
  Trainer(const TrainingOptions& options, const ReducerOptions& reducer, const DataOptions& data,
          Parts parts);

  /// Continues from a checkpoint, which rank 0 passes (null on the other ranks, or on all for a new run).
  /// Collective.
  void start_from(const Snapshot* snapshot);

  enum class End { kFinished, kStopped };
  /// Trains up to the last step of the run, to `stop_after` steps, or until any rank is asked to `stop`; in
  /// each case the last step has been passed to the keeper, which knows whether it is safe. Where the run is
  /// not done, no measurement is begun after that step: the next run() begins with those that are due.
  /// Collective; `stop_after` must be the same on all ranks.
  /// Throws NonFiniteError, PeerLostError, DataError, and what the keeper throws.
  End run(const StopRequest& stop, int64_t stop_after = std::numeric_limits<int64_t>::max());

  const TrainingProgress& progress() const { return state_.progress; }
  const BatchShare& share() const { return share_; }
  /// Of this rank, now.
  RankMemory memory() const;

 private:
  void take_step();
  void at_boundary(bool leaving);
  bool agree_to_stop(const StopRequest& stop);
  /// Names ranks that hold the others back, where that begins or ends. Collective.
  void watch_for_slow_ranks(const TrainingFigures& figures);
  void report();
  void save(bool leaving);
  /// Whether it asks for the step that was taken, and that is finite. Collective where the optimizer is
  /// sharded, as saving is then.
  bool keeper_wants_step();
  bool finite_on_all_ranks();
  /// What rank 0 says. Collective.
  bool as_root_says(bool statement);
  void give_step_to_keeper(bool leaving);
  /// Whether what comes every `interval` steps, and at the last one, comes after this step.
  bool due(int64_t interval, bool leaving) const;
  bool held_out_due(bool leaving) const;
  bool returns_due() const;
  /// Whether a measurement that was due at the step from which the run goes on was cut short, or not begun.
  /// Collective.
  bool held_out_missed();
  bool returns_missed();
  /// Both return false where the run was asked to stop meanwhile. Collective.
  bool measure_held_out(const StopRequest& stop);
  bool measure_returns(const StopRequest& stop);
  void warn_of_cut_short(const char* what);
  [[noreturn]] void fail_non_finite(const std::string& found);

  TrainingOptions options_;
  Parts parts_;
  BatchShare share_;
  DataOptions data_;
  GradientReducer reducer_;
  Optimizer optimizer_;
  std::unique_ptr<LossScale> loss_scale_;  ///< null unless forward and backward compute in fp16
  TrainingState state_;
  std::unique_ptr<BatchSource> batches_;  ///< from start_from on
  TrainStep step_;                        ///< declared after everything that its CUDA graph uses
  LearningRateSchedule schedule_;
  StepProfiler profiler_;
  MemoryMeter memory_;
  int64_t start_memory_ = 0;  ///< bytes in use before the first step
  SlowRankMonitor slow_ranks_;
  RankTimes times_;            ///< since the last report, as far as they are added up here
  int64_t reported_step_ = 0;  ///< of the last report
};

}  // namespace adtrain
