#include "data/StagedBatch.h"

#include <ATen/ATen.h>

#include "data/PinnedCopy.h"

namespace adtrain {

StagedBatch::StagedBatch(const Batch& batch, at::Device gpu) {
  const auto bytes = at::TensorOptions(at::kByte);
  host_bytes_ = at::empty({batch.bytes()}, bytes.pinned_memory(true));
  gpu_bytes_ = at::empty({batch.bytes()}, bytes.device(gpu));
  host_ = batch.within(host_bytes_);
  gpu_ = batch.within(gpu_bytes_);
  stage(batch);
  start();
}

void StagedBatch::start() {
  copy_pinned(gpu_bytes_, host_bytes_);
}

}  // namespace adtrain
