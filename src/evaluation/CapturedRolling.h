#pragma once

#include <optional>

#include <c10/core/Device.h>

#include "data/StagedBatch.h"
#include "memory/StepGraph.h"
#include "model/AlgorithmDistillation.h"

namespace adtrain {

/// Rows that grow by one step at a time, on a GPU, whose steps are replays of one CUDA graph: of a network
/// with AlgorithmDistillation::rolling_repeats(). The same predictions without the host's delays: the graph
/// also brings the step to the GPU and the predictions back, both through pinned memory. The first step
/// runs eagerly, as it makes room for keys and values, and so does the second one where it has another shape;
/// the next one captures. For one thread, on the stream that is then current, which must not be the default
/// one.
class CapturedRolling {
 public:
  CapturedRolling(AlgorithmDistillation::Rolling rolling, c10::Device device);

  /// `step`: on the CPU; its shapes are the same from the second call on. Returns predictions on the CPU.
  /// Throws where memory does not suffice to capture.
  AlgorithmDistillation::Predictions operator()(const Batch& step);

 private:
  /// Brings what is staged to the GPU, predicts, and brings the predictions back: what is captured.
  void predict();
  AlgorithmDistillation::Predictions copied() const;  ///< which later steps leave as they are

  AlgorithmDistillation::Rolling rolling_;
  c10::Device device_;
  StepGraph graph_;
  std::optional<StagedBatch> step_;
  AlgorithmDistillation::Predictions predictions_;  ///< in pinned memory
};

}  // namespace adtrain
