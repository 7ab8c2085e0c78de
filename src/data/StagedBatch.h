#pragma once

#include <ATen/core/Tensor.h>

#include "data/Batch.h"

namespace adtrain {

/// A batch in pinned memory and its copy on a GPU, each in one piece, so that one transfer brings all values
/// there, however many tensors they are. For one thread.
class StagedBatch {
 public:
  /// With room for batches like this one, and with its values on both sides.
  StagedBatch(const Batch& batch, at::Device gpu);

  /// Overwrites the values on the host with those of a batch of the same shapes. No transfer may be under
  /// way.
  void stage(const Batch& batch) { host_.copy_from(batch); }
  /// Starts the transfer, on the current stream. It may be captured: a replay brings what is then staged.
  void start();
  const Batch& on_gpu() const { return gpu_; }

 private:
  at::Tensor host_bytes_, gpu_bytes_;
  Batch host_, gpu_;  ///< views of them
};

}  // namespace adtrain
