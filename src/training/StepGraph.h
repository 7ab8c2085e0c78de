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
  /// Records what `work` launches without running it.
  void capture(const std::function<void()>& work);
  /// Launches the recorded work on the current stream.
  void replay();

 private:
  struct Graph;  ///< keeps CUDA's headers out of every other file
  c10::Device device_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace adtrain
