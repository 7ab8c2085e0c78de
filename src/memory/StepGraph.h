#pragma once

#include <functional>
#include <memory>

#include <c10/core/Device.h>

namespace adtrain {

/// A CUDA graph of work for one GPU: captured once, replayed any number of times. At each replay its random
/// numbers come from the device's generator, with the generator's seed at that time.
///
/// Captures on the current stream, which must not be the default one; memory that the work allocates belongs
/// to the graph. Where the work holds collective operations every rank must capture and replay alike, and the
/// graph must be destroyed before their communicator. For one thread.
class StepGraph {
 public:
  explicit StepGraph(c10::Device device);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  bool captured() const { return graph_ != nullptr; }
  /// Records what `work` launches without running it. What earlier work has left in the allocator's cache is
  /// given back to the GPU before, so that the graph's memory takes the place of it instead of standing
  /// beside it. Throws what `work` throws; the stream, the allocator and the generator are then as before.
  void capture(const std::function<void()>& work);
  /// Bytes that the graph itself takes on the GPU, beside what the work allocates; known from the first
  /// replay on.
  int64_t bytes() const { return bytes_; }
  /// Launches the recorded work on the current stream.
  void replay();
  /// Discards what was captured, and gives its memory back to the GPU.
  void discard();
  /// Runs `work` now, with memory that the graph needs only while it is replayed, where there is a graph. No
  /// tensor that `work` allocates may be used after it, and it must not capture.
  void lend_memory_to(const std::function<void()>& work);

 private:
  struct Graph;  ///< keeps CUDA's headers out of every other file
  c10::Device device_;
  std::unique_ptr<Graph> graph_;
  int64_t bytes_ = 0;
  int64_t outside_before_ = 0;  ///< bytes_outside_allocator() before the capture
  bool replayed_ = false;
};

}  // namespace adtrain
