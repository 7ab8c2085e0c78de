#include "training/LossScale.h"

#include <ATen/ATen.h>

namespace adtrain {
namespace {

constexpr float kFirstFactor = 65536;
constexpr float kSmallestFactor = 1.0F / 8192;
constexpr double kGrowth = 2, kBackoff = 0.5;
constexpr int64_t kStepsBetweenGrowth = 2000;

}  // namespace

std::unique_ptr<LossScale> LossScale::for_type(at::ScalarType type, at::Device device) {
  return type == at::kHalf ? std::make_unique<LossScale>(device) : nullptr;
}

LossScale::LossScale(at::Device device)
    : state_(at::tensor({kFirstFactor, 0.0F, 0.0F}).to(device)), overflow_(at::zeros({}, device)) {}

void LossScale::unscale(at::TensorList gradient) {
  overflow_.zero_();
  if (gradient.empty()) return;
  at::_amp_foreach_non_finite_check_and_unscale_(gradient, overflow_, factor().reciprocal());
}

void LossScale::update() {
  at::Tensor scale = state_[0];
  at::Tensor steps = state_[1].to(at::kInt);  // the operator requires integers
  at::_amp_update_scale_(scale, steps, overflow_, kGrowth, kBackoff, kStepsBetweenGrowth);
  state_[1].copy_(steps);
  state_[2].add_(overflow_);
}

bool LossScale::exhausted() const {
  return !(factor().item<float>() >= kSmallestFactor);
}

}  // namespace adtrain
