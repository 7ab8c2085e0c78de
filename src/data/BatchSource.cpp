#include "data/BatchSource.h"

#include <c10/cuda/CUDAFunctions.h>

#include "data/PrefetchedBatches.h"
#include "data/ResidentBatches.h"

namespace adtrain {
namespace {

bool live_on_gpu(int64_t bytes, const DataOptions& options, at::Device device) {
  if (!device.is_cuda() || options.histories_on_gpu == HistoriesOnGpu::kOff) return false;
  if (options.histories_on_gpu == HistoriesOnGpu::kOn) return true;
  size_t free_bytes = 0, total_bytes = 0;
  const cudaError_t result = cudaMemGetInfo(&free_bytes, &total_bytes);
  // The model and its activations need memory too.
  return result == cudaSuccess && bytes < static_cast<int64_t>(free_bytes / 4);
}

}  // namespace

std::unique_ptr<BatchSource> BatchSource::create(const Feed& feed, const DataOptions& options,
                                                 at::Device device) {
  if (feed.windows.transitions() != nullptr && live_on_gpu(feed.windows.bytes(), options, device)) {
    return std::make_unique<ResidentBatches>(feed, device);
  }
  return std::make_unique<PrefetchedBatches>(feed, options.num_workers, device);
}

}  // namespace adtrain
