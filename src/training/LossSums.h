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
};

/// Adds up what a rank's micro-batches return, on the device, and reads it back only when it is asked for.
class LossSums {
 public:
  explicit LossSums(at::Device device);

  void add(const AlgorithmDistillation::Loss& loss);

  /// The figures over all ranks since the last call; starts anew. Collective; synchronises with the device.
  LossFigures take_merged(Communicator& communicator);

 private:
  at::Tensor sums_;  ///< float64 (3) on the device: cross-entropies, right answers, targets
};

}  // namespace adtrain
