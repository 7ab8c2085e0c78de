#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "collectives/Communicator.h"
#include "model/AlgorithmDistillation.h"

namespace adtrain {

/// Mean loss and accuracy over a number of predictions, merged over ranks.
struct LossFigures {
  double loss = 0;  ///< mean a target: of the cross-entropy, in nats, or of what else the loss is
  /// Share of targets that are the most probable prediction; nothing where none can be, as of real numbers.
  std::optional<double> accuracy = std::nullopt;
  int64_t targets = 0;
  int64_t non_finite_batches =
      0;  ///< micro-batches whose loss was not finite; the other figures exclude them
};

/// Sums the results of a rank's micro-batches on the device and reads the sums back only on request. A
/// micro-batch whose loss is not finite is counted and otherwise excluded: with fp16 its step is
/// skipped, and it must not affect the figures of other steps.
class LossSums {
 public:
  explicit LossSums(at::Device device);

  void add(const AlgorithmDistillation::Loss& loss);

  /// Returns the figures over all ranks since the last call, and resets the sums. Where no loss was finite,
  /// loss and accuracy are NaN. Collective; synchronises with the device.
  LossFigures take_merged(Communicator& communicator);

 private:
  /// float64 (5) on the device: losses, correct predictions, targets, micro-batches whose targets may be
  /// correct, non-finite micro-batches.
  at::Tensor sums_;
};

}  // namespace adtrain
