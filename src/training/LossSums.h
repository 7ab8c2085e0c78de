#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "distributed/Communicator.h"
#include "model/AlgorithmDistillation.h"

namespace adtrain {

/// Mean loss and accuracy over a number of predictions, merged over ranks.
struct LossFigures {
  double loss = 0;      ///< mean cross-entropy a target, in nats
  double accuracy = 0;  ///< share of targets that are the most probable prediction
  int64_t targets = 0;
  int64_t non_finite_batches =
      0;  ///< micro-batches whose loss was not finite; the other figures leave them out
};

/// Adds up what a rank's micro-batches return, on the device, and reads it back only when it is asked for.
/// A micro-batch whose cross-entropy is not finite is counted and otherwise left out: with fp16 its step is
/// skipped, and it must not spoil the figures of the steps around it.
class LossSums {
 public:
  explicit LossSums(at::Device device);

  void add(const AlgorithmDistillation::Loss& loss);

  /// The figures over all ranks since the last call; starts anew. Where no loss was finite, loss and accuracy
  /// are NaN. Collective; synchronises with the device.
  LossFigures take_merged(Communicator& communicator);

 private:
  /// float64 (4) on the device: cross-entropies, right answers, targets, micro-batches that are not finite.
  at::Tensor sums_;
};

}  // namespace adtrain
