#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "data/BatchSource.h"
#include "data/BatchUploader.h"

namespace adtrain {

/// Batches that are assembled on the CPU: `workers` threads assemble up to 2·workers micro-batches in
/// advance; with 0 the caller's thread does it. For a GPU they are assembled in pinned memory, and the next
/// one is copied while the GPU works on the current one. next() rethrows a worker's exception.
class PrefetchedBatches final : public BatchSource {
 public:
  PrefetchedBatches(const Feed& feed, int64_t workers, at::Device device);
  ~PrefetchedBatches() override;
  PrefetchedBatches(const PrefetchedBatches&) = delete;
  PrefetchedBatches& operator=(const PrefetchedBatches&) = delete;

  Batch next() override;
  double take_seconds_waited() override;
  bool on_device() const override { return false; }
  int64_t history_bytes() const override;
  std::string description() const override;

 private:
  Batch take();
  Batch assemble(int64_t ticket) const;
  void work();

  Feed feed_;
  at::Device device_;
  BatchUploader uploader_;
  int64_t next_ticket_ = 0;  ///< the micro-batch that take() returns
  double seconds_waited_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  /// A micro-batch, or why there is none: that concerns who takes it, not those before.
  struct Assembled {
    Batch batch;
    std::exception_ptr failure;
  };
  std::map<int64_t, Assembled> ready_;
  int64_t next_to_assemble_ = 0;
  int64_t ahead_;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace adtrain
