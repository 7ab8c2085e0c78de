#pragma once

#include <cstdint>
#include <functional>

#include "collectives/SingleCommunicator.h"
#include "data/BatchAssembler.h"
#include "data/DataOptions.h"
#include "launch/DistributedOptions.h"
#include "model/AlgorithmDistillation.h"
#include "training/TrainingOptions.h"

namespace adtrain {

/// Steps of a training run of one rank that leave nothing but measurements: what a batch size takes of memory
/// and time. They are the run's own steps, eager and captured, with all that the run holds beside them: the
/// histories on the GPU, optimizer, gradients, a forward pass of the held-out loss, and the check before
/// saving. Only communication is left out, so that ranks may fail at different steps. A sharded optimizer has
/// this rank's shard.
class TrainingTrial {
 public:
  /// All borrowed.
  struct Parts {
    AlgorithmDistillation& model;
    const BatchAssembler& training_windows;
    const BatchAssembler* held_out_windows;  ///< null: no held-out loss
    int64_t rank = 0;                        ///< of the run that is tried
    int64_t world_size = 1;
  };
  TrainingTrial(const TrainingOptions& options, const ReducerOptions& reducer, const DataOptions& data,
                Parts parts);
  /// The model's parameters are as they were before the first step.
  ~TrainingTrial();
  TrainingTrial(const TrainingTrial&) = delete;
  TrainingTrial& operator=(const TrainingTrial&) = delete;

  struct Seconds {
    double micro_batch = 0;     ///< of the last step, for each of its micro-batches
    double held_out_batch = 0;  ///< of the forward pass of the held-out loss
  };
  /// Steps with this micro-batch, and this many rows in a forward pass of the held-out loss. Calls
  /// `at_the_end` while all of it is still in memory. Throws what they throw, and Error (kOutOfMemory) where
  /// the options allow to capture and memory does not; what was taken is then free again.
  Seconds take_steps(int64_t micro_batch, int64_t accumulation, int64_t held_out_batch,
                     const std::function<void()>& at_the_end);

 private:
  TrainingOptions options_;
  ReducerOptions reducer_;
  DataOptions data_;
  Parts parts_;
  SingleCommunicator alone_;
  at::Tensor values_before_;  ///< of the parameters, on the CPU
};

}  // namespace adtrain
