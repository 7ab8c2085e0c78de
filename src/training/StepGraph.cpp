#include "training/StepGraph.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>

namespace adtrain {

struct StepGraph::Graph {
  at::cuda::CUDAGraph graph;
};

StepGraph::StepGraph(c10::Device device) : device_(device) {}
StepGraph::~StepGraph() = default;

void StepGraph::capture(const std::function<void()>& work) {
  auto captured = std::make_unique<Graph>();
  captured->graph.register_generator_state(at::globalContext().defaultGenerator(device_));
  c10::cuda::device_synchronize();
  // Thread-local mode: other threads' work meanwhile, such as copies of batches, is not captured.
  captured->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  work();
  captured->graph.capture_end();
  graph_ = std::move(captured);
}

void StepGraph::replay() {
  graph_->graph.replay();
}

}  // namespace adtrain
