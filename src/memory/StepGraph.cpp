#include "memory/StepGraph.h"

#include <algorithm>

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "memory/MemoryMeter.h"

namespace adtrain {

namespace allocator = c10::cuda::CUDACachingAllocator;

struct StepGraph::Graph {
  at::cuda::CUDAGraph graph;

  /// Ends a capture whose work has failed.
  void abandon(c10::Device device) {
    try {
      graph.capture_end();
    } catch (const c10::Error&) {
      // Where work on another stream was still to be joined, CUDA calls the capture invalid, and libtorch
      // leaves its memory pool open.
      try {
        allocator::endAllocateToPool(device.index(), graph.pool());
        allocator::releasePool(device.index(), graph.pool());
      } catch (const c10::Error&) {  // the capture had ended: the graph's destructor releases the pool
      }
    }
    // The generator still holds that it is being captured. A clone has its seed and offset, and no capture.
    at::Generator generator = at::globalContext().defaultGenerator(device);
    generator.graphsafe_set_state(generator.clone());
  }
};

StepGraph::StepGraph(c10::Device device) : device_(device) {}
StepGraph::~StepGraph() = default;

void StepGraph::capture(const std::function<void()>& work) {
  auto captured = std::make_unique<Graph>();
  captured->graph.register_generator_state(at::globalContext().defaultGenerator(device_));
  c10::cuda::device_synchronize();
  allocator::emptyCache();
  outside_before_ = bytes_outside_allocator(device_);
  // Thread-local mode: other threads' work meanwhile, such as copies of batches, is not captured.
  captured->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  try {
    work();
    captured->graph.capture_end();
  } catch (...) {
    captured->abandon(device_);
    captured.reset();
    allocator::emptyCache();
    throw;
  }
  graph_ = std::move(captured);
  replayed_ = false;
}

void StepGraph::replay() {
  graph_->graph.replay();
  if (replayed_) return;
  replayed_ = true;  // CUDA has by now allocated all that replays take
  bytes_ = std::max<int64_t>(0, bytes_outside_allocator(device_) - outside_before_);
}

void StepGraph::discard() {
  if (graph_ == nullptr) return;
  c10::cuda::device_synchronize();
  graph_.reset();
  bytes_ = 0;
  allocator::emptyCache();
}

void StepGraph::lend_memory_to(const std::function<void()>& work) {
  if (graph_ == nullptr) return work();
  const at::cuda::MempoolId_t pool = graph_->graph.pool();
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_.index());
  const auto close = [&] {
    allocator::endAllocateToPool(device_.index(), pool);
    allocator::releasePool(device_.index(), pool);
  };
  allocator::beginAllocateToPool(device_.index(), pool,
                                 [stream](cudaStream_t of_request) { return of_request == stream; });
  try {
    work();
  } catch (...) {
    close();
    throw;
  }
  close();
}

}  // namespace adtrain
