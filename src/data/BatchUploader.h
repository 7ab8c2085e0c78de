#pragma once

#include <memory>

#include "data/Batch.h"

namespace adtrain {

/// Copies batches from the CPU to a device: on a stream of its own where that is a GPU, so that a copy
/// overlaps with the work on the previous batch. For one thread.
class BatchUploader {
 public:
  explicit BatchUploader(at::Device device);
  ~BatchUploader();
  BatchUploader(const BatchUploader&) = delete;
  BatchUploader& operator=(const BatchUploader&) = delete;

  bool to_gpu() const { return stream_ != nullptr; }
  /// Whether a copy is under way.
  bool busy() const { return !under_way_.empty(); }
  /// Starts the copy of a batch, which is pinned where the device is a GPU; none may be under way.
  void start(const Batch& batch);
  /// The batch of the copy under way, usable on the current stream.
  Batch finish();

 private:
  struct Stream;  ///< keeps CUDA's headers out of every other file
  at::Device device_;
  std::unique_ptr<Stream> stream_;
  Batch under_way_;
};

}  // namespace adtrain
