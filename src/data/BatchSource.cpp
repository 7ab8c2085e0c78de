#include "data/BatchSource.h"

#include <c10/cuda/CUDAFunctions.h>

#include "data/PrefetchedBatches.h"
#include "data/ResidentBatches.h"
#include "data/ResidentColumns.h"

namespace adtrain {
namespace {

bool fit_into_gpu(int64_t bytes, const DataOptions& options) {
  if (options.histories_on_gpu == HistoriesOnGpu::kOn) return true;
  size_t free_bytes = 0, total_bytes = 0;
  const cudaError_t result = cudaMemGetInfo(&free_bytes, &total_bytes);
  return result == cudaSuccess && bytes < most_on_gpu(static_cast<int64_t>(free_bytes));
}

}  // namespace

std::unique_ptr<BatchSource> BatchSource::create(const Feed& feed, const DataOptions& options,
                                                 at::Device device) {
  if (device.is_cuda() && options.histories_on_gpu != HistoriesOnGpu::kOff) {
    const bool in_memory = feed.windows.transitions() != nullptr;
    if (in_memory && fit_into_gpu(feed.windows.bytes(), options))
      return std::make_unique<ResidentBatches>(feed, device);
    if (feed.windows.held_columns() != nullptr) return std::make_unique<ResidentColumns>(feed, device);
  }
  return std::make_unique<PrefetchedBatches>(feed, options.num_workers, device);
}

}  // namespace adtrain
