#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/Communicator.h"
#include "data/BatchSource.h"
#include "data/HistorySet.h"
#include "data/TransitionWindows.h"
#include "model/AlgorithmDistillation.h"
#include "parallel/GradientReducer.h"
#include "run/RunConfig.h"
#include "training/LearningRateSchedule.h"
#include "training/LossScale.h"
#include "training/Optimizer.h"
#include "training/TrainStep.h"

namespace adtrain {

/// Training as the command `train` puts it together, over random histories in memory, with a clock on the
/// GPU. A step holds all that a step of Trainer::run does, what ranks tell each other over the CPU included;
/// reports, the held-out loss and checkpoints are left out. For one thread; every function that takes steps
/// is collective.
class TimedTraining {
 public:
  /// The communicator's device is a GPU and the current one, its current stream not the default one.
  TimedTraining(const RunConfig& config, Communicator& communicator);

  void take_steps(int64_t count);

  struct Times {
    std::vector<double> milliseconds;  ///< of each step on the GPU, the time between two steps included
    double seconds;                    ///< of all together, by the host's clock
    double data_wait_seconds;          ///< of these the host waited for batches
  };
  /// Takes steps without waiting for the GPU until the last is done.
  Times time_steps(int64_t count);

  /// Seconds of a step during which the GPU had nothing to do but wait for communication: the median of
  /// several readings. Only the latest step's can be read, and reading waits for the GPU, so ranks run freely
  /// over some steps before each.
  double measure_exposed_communication();

  /// Mean loss over all ranks since the beginning, in nats. Throws NonFiniteError where it is not a number:
  /// the time of such steps means nothing.
  double checked_loss();

  const BatchShare& share() const { return share_; }
  bool captured() const { return step_.captured(); }
  AlgorithmDistillation& model() { return *model_; }
  const BatchSource& batches() const { return *batches_; }

 private:
  void take_step();

  Communicator& communicator_;
  BatchShare share_;
  HistorySet histories_;
  TransitionWindows windows_;
  std::unique_ptr<AlgorithmDistillation> model_;
  GradientReducer reducer_;
  Optimizer optimizer_;
  std::unique_ptr<LossScale> loss_scale_;  ///< null unless forward and backward compute in fp16
  std::unique_ptr<BatchSource> batches_;
  TrainStep step_;  ///< after all that its CUDA graph works on
  LearningRateSchedule schedule_;
  int64_t steps_taken_ = 0;
};

}  // namespace adtrain
