#pragma once

#include <c10/core/Device.h>

#include "data/Batch.h"
#include "memory/StepGraph.h"
#include "model/AlgorithmDistillation.h"

namespace adtrain {

/// Rows that grow by one step at a time, on a GPU, whose steps are replays of one CUDA graph: of a network
/// with AlgorithmDistillation::rolling_repeats(). The same predictions without the host's delays. The first
/// step of each shape runs eagerly, as it makes room for keys and values; the next one captures. For one
/// thread, on the stream that is then current, which must not be the default one.
class CapturedRolling {
 public:
  CapturedRolling(AlgorithmDistillation::Rolling rolling, c10::Device device);

  /// `step`: on the CPU; its shapes are the same from the second call on. Returns predictions on the device,
  /// which the next call changes. Throws where memory does not suffice to capture.
  AlgorithmDistillation::Predictions operator()(const Batch& step);

 private:
  AlgorithmDistillation::Rolling rolling_;
  c10::Device device_;
  StepGraph graph_;
  Batch step_;  ///< on the device: what the graph reads
  AlgorithmDistillation::Predictions predictions_;
};

}  // namespace adtrain
