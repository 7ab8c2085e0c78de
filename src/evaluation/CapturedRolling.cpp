#include "evaluation/CapturedRolling.h"

#include <utility>

namespace adtrain {

CapturedRolling::CapturedRolling(AlgorithmDistillation::Rolling rolling, c10::Device device)
    : rolling_(std::move(rolling)), device_(device), graph_(device) {}

AlgorithmDistillation::Predictions CapturedRolling::operator()(const Batch& step) {
  if (step_.empty() || step_.states.sizes() != step.states.sizes()) {
    step_ = step.to(device_);
    return rolling_(step_);
  }
  step_.copy_from(step);
  if (!graph_.captured()) graph_.capture([this] { predictions_ = rolling_(step_); });
  graph_.replay();
  return predictions_;
}

}  // namespace adtrain
