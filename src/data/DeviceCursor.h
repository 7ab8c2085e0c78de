#pragma once

#include <cstdint>

#include "data/BatchSource.h"

namespace adtrain {

/// Where a rank's next micro-batch begins in the global order, for batches that a GPU cuts: the steps' part
/// of it is on the GPU too, so that each replay of a captured step moves it on.
class DeviceCursor {
 public:
  DeviceCursor(const BatchSource::Feed& feed, at::Device device);

  at::Device device() const { return samples_.device(); }
  /// On the GPU: samples of the global order that were drawn before this step.
  const int64_t* samples() const { return samples_.const_data_ptr<int64_t>(); }
  /// Of the next micro-batch, in its step.
  int64_t first_row() const { return share_.first_row(micro_step_); }
  /// To the next micro-batch; behind the last one of a step, on the current stream, to the next step.
  void advance();
  void restart_step() { micro_step_ = 0; }

 private:
  BatchShare share_;
  at::Tensor samples_;  ///< int64 (1)
  int64_t micro_step_ = 0;
};

}  // namespace adtrain
