#include "framework/GradientIntake.h"

#include <memory>
#include <stdexcept>

#include <ATen/ScalarOps.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace adtrain {
namespace {

at::Tensor as_number(double value) {
  at::Tensor number = c10::scalar_to_tensor(value);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number;
}

}  // namespace

/// Autograd calls this when it has put a gradient into a parameter's `.grad`.
class GradientIntake::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientIntake& intake, size_t parameter) : intake_(intake), parameter_(parameter) {}
  void operator()(const at::Tensor&) override { intake_.gradient_came(parameter_); }

 private:
  GradientIntake& intake_;
  size_t parameter_;
};

GradientIntake::GradientIntake(const std::vector<at::Tensor>& parameters,
                               const std::vector<at::Tensor>& mains, GradientReducer& reducer, double factor)
    : reducer_(reducer),
      sums_multiply_(reducer.multiply_sums_by(factor)),
      factor_(sums_multiply_ ? 1 : factor),
      number_(as_number(factor_)),
      fp32_(at::full({1}, factor_, at::TensorOptions(parameters.front().device()).dtype(at::kFloat))) {
  for (size_t index = 0; index < parameters.size(); ++index) {
    const at::Tensor& parameter = parameters[index];
    const at::Tensor view =
        reducer_.place_of(parameter).narrow(0, 0, parameter.numel()).view(parameter.sizes());
    // Autograd must not see a view: zero_grad() detaches gradients in place, which fails for views.
    places_.push_back({.parameter = parameter, .main = mains[index], .view = view.detach()});
    places_.back().main.mutable_grad() = places_.back().view;
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(*this, index));
  }
}

GradientIntake::~GradientIntake() {
  for (const Place& place : places_) torch::autograd::impl::set_post_acc_grad_hooks(place.parameter, nullptr);
}

void GradientIntake::begin_micro_step(bool last) {
  const bool begins_step = !in_step_;
  in_step_ = false;
  if (!begins_step) check_attached();
  in_step_ = true;
  for (Place& place : places_) {
    if (begins_step) place.is_taken = false;
    place.has_come = false;
    place.parameter.mutable_grad() = at::Tensor();
  }
  reducer_.begin_micro_step(last);
}

void GradientIntake::gradient_came(size_t parameter) {
  if (!in_step_) return;  // a backward pass outside a step
  Place& place = places_[parameter];
  const at::Tensor gradient = place.parameter.grad();
  if (place.has_come) {
    throw std::logic_error(fmt::format(
        "A second gradient came for parameter {} (in the order given) in one micro-step; expected one "
        "backward pass between two calls of begin_micro_step: use the parameter in one of them, or call "
        "begin_micro_step before each.",
        parameter));
  }
  if (gradient.requires_grad()) {
    throw std::logic_error(fmt::format(
        "The gradient of parameter {} (in the order given) requires gradients itself; expected a number that "
        "can be summed over ranks: leave out create_graph.",
        parameter));
  }
  const at::AutoGradMode no_gradients(false);
  const bool stays = can_stay(parameter, gradient);
  if (!stays) take(place, gradient);
  place.is_taken = place.has_come = true;
  place.parameter.mutable_grad() = at::Tensor();
  place.main.mutable_grad() = place.view;
  if (stays) {
    reducer_.arrived_at(parameter, gradient);
  } else {
    reducer_.arrived(parameter);
  }
}

bool GradientIntake::can_stay(size_t parameter, const at::Tensor& gradient) const {
  return sums_multiply_ && reducer_.communicates() && !places_[parameter].is_taken &&
         gradient.layout() == at::kStrided && gradient.scalar_type() == at::kFloat &&
         gradient.is_contiguous();
}

void GradientIntake::take(const Place& place, const at::Tensor& gradient) const {
  const bool adds = place.is_taken || gradient.layout() != at::kStrided;
  if (!place.is_taken && adds) place.view.zero_();
  if (adds) {
    place.view.add_(gradient, factor_);
  } else if (factor_ == 1) {
    place.view.copy_(gradient);
  } else {
    at::Tensor view = place.view;
    at::mul_out(view, gradient, gradient.scalar_type() == at::kFloat ? number_ : fp32_);
  }
}

void GradientIntake::finish() {
  for (const Place& place : places_) {
    if (!place.is_taken) place.view.zero_();
  }
  in_step_ = false;
  reducer_.finish();
  check_attached();
  for (Place& place : places_) place.main.mutable_grad() = place.view;
}

void GradientIntake::check_attached() const {
  for (size_t index = 0; index < places_.size(); ++index) {
    const Place& place = places_[index];
    if (!place.has_come || place.main.grad().is_same(place.view)) continue;
    throw std::logic_error(fmt::format(
        "The gradient of parameter {} (in the order given) was replaced during the step; expected it to stay "
        "a part of the flat gradient: leave out zero_grad() between micro-steps.",
        index));
  }
}

}  // namespace adtrain
