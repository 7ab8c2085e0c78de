#include "data/BatchUploader.h"

#include <utility>

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace adtrain {

struct BatchUploader::Stream {
  c10::cuda::CUDAStream copies;
  at::cuda::CUDAEvent copied, released;
};

BatchUploader::BatchUploader(at::Device device)
    : device_(device),
      stream_(device.is_cuda() ? std::make_unique<Stream>(
                                     Stream{.copies = c10::cuda::getStreamFromPool(false, device.index()),
                                            .copied = {},
                                            .released = {}})
                               : nullptr) {}

BatchUploader::~BatchUploader() = default;

void BatchUploader::start(const Batch& batch) {
  if (!to_gpu()) {
    under_way_ = batch;
    return;
  }
  // The copies' stream reuses the memory of earlier batches: the work that reads them must be complete first.
  stream_->released.record(c10::cuda::getCurrentCUDAStream());
  const c10::cuda::CUDAStreamGuard guard(stream_->copies);
  stream_->released.block(stream_->copies);
  under_way_ = batch.to(device_, /*non_blocking=*/true);
  stream_->copied.record(stream_->copies);
}

Batch BatchUploader::finish() {
  if (to_gpu()) stream_->copied.block(c10::cuda::getCurrentCUDAStream());
  return std::exchange(under_way_, {});
}

}  // namespace adtrain
