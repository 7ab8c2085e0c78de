#include "evaluation/CapturedRolling.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

#include "data/PinnedCopy.h"

namespace adtrain {
namespace {

using Predictions = AlgorithmDistillation::Predictions;

/// `change` of each tensor that is defined.
template <class Change>
Predictions changed(const Predictions& predictions, Change change) {
  const auto of = [&](const at::Tensor& logits) { return logits.defined() ? change(logits) : logits; };
  return {of(predictions.actions), of(predictions.token_types)};
}

}  // namespace

CapturedRolling::CapturedRolling(AlgorithmDistillation::Rolling rolling, c10::Device device)
    : rolling_(std::move(rolling)), device_(device), graph_(device) {}

Predictions CapturedRolling::operator()(const Batch& step) {
  if (!step_ || step_->on_gpu().states.sizes() != step.states.sizes()) {
    TORCH_CHECK(!graph_.captured(), "captured steps have states of ", step_->on_gpu().states.sizes(),
                ", and this one of ", step.states.sizes());
    step_.emplace(step, device_);
    predictions_ = changed(rolling_(step_->on_gpu()),
                           [](const at::Tensor& logits) { return logits.to(at::kCPU).pin_memory(); });
    return copied();
  }
  step_->stage(step);
  if (!graph_.captured()) graph_.capture([this] { predict(); });
  graph_.replay();
  c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();
  return copied();
}

void CapturedRolling::predict() {
  step_->start();
  const Predictions found = rolling_(step_->on_gpu());
  copy_pinned(predictions_.actions, found.actions.contiguous());
  if (found.token_types.defined()) copy_pinned(predictions_.token_types, found.token_types.contiguous());
}

Predictions CapturedRolling::copied() const {
  return changed(predictions_, [](const at::Tensor& logits) { return logits.clone(); });
}

}  // namespace adtrain
