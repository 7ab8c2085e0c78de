#include "training/Optimizer.h"

#include <optional>
#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

namespace adtrain {
namespace {

LowPrecisionType low_precision_type(const at::Tensor& low_precision) {
  if (!low_precision.defined()) return LowPrecisionType::kNone;
  if (low_precision.scalar_type() == at::kHalf) return LowPrecisionType::kHalf;
  if (low_precision.scalar_type() == at::kBFloat16) return LowPrecisionType::kBFloat16;
  throw std::invalid_argument(fmt::format(
      "The low_precision of parameters is of type {}; expected one of 16-bit floating-point numbers.",
      c10::toString(low_precision.scalar_type())));
}

}  // namespace

Optimizer::Optimizer(const at::Tensor& parameters, const TrainingOptions& options)
    : parameters_(parameters.detach()),
      first_moment_(at::zeros_like(parameters_)),
      second_moment_(at::zeros_like(parameters_)),
      step_count_(at::zeros({}, parameters_.options())),
      gradient_norm_(at::zeros({}, parameters_.options())),
      // The kernels take a float; on the CPU torch's operator takes any type.
      learning_rate_(
          at::zeros({}, parameters_.options().dtype(parameters_.is_cuda() ? at::kFloat : at::kDouble))),
      rule_{.beta1 = options.beta1,
            .beta2 = options.beta2,
            .epsilon = options.adam_epsilon,
            .weight_decay = options.weight_decay,
            .max_grad_norm = options.max_grad_norm} {
  if (parameters_.is_cuda()) {
    kernel_memory_ = at::zeros({sizeof(AdamWMemory)}, parameters_.options().dtype(at::kByte));
  }
}

void Optimizer::set_learning_rate(double rate) {
  learning_rate_.fill_(rate);
}

void Optimizer::step(const at::Tensor& gradient, LossScale* loss_scale, const at::Tensor& low_precision) {
  const at::NoGradGuard no_grad;
  if (parameters_.is_cuda()) {
    step_by_kernels(gradient, loss_scale, low_precision);
  } else {
    step_by_operators(gradient, loss_scale, low_precision);
  }
}

void Optimizer::step_by_operators(const at::Tensor& gradient, LossScale* loss_scale,
                                  const at::Tensor& low_precision) {
  std::optional<at::Tensor> overflow;
  if (loss_scale != nullptr) {
    loss_scale->unscale(gradient);
    overflow = loss_scale->overflow();
  }
  gradient_norm_.copy_(gradient.norm());
  if (rule_.max_grad_norm > 0) {
    // PyTorch's clip_grad_norm_: the 1e-6 keeps a zero gradient from dividing by zero.
    gradient.mul_((rule_.max_grad_norm / (gradient_norm_ + 1e-6)).clamp_max(1.0));
  }
  step_count_.add_(1);
  at::_fused_adamw_({parameters_}, {gradient}, {first_moment_}, {second_moment_}, /*max_exp_avg_sqs=*/{},
                    {step_count_}, learning_rate_, rule_.beta1, rule_.beta2, rule_.weight_decay,
                    rule_.epsilon,
                    /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{}, overflow);
  if (overflow) step_count_.sub_(*overflow);  // a skipped step does not count
  gradient.zero_();
  if (low_precision.defined()) low_precision.copy_(parameters_);
}

void Optimizer::step_by_kernels(const at::Tensor& gradient, LossScale* loss_scale,
                                const at::Tensor& low_precision) {
  for (const at::Tensor* beside : {&gradient, &low_precision}) {
    if (beside->defined() && (beside->sizes() != parameters_.sizes() || !beside->is_contiguous())) {
      throw std::invalid_argument("A gradient and an low_precision lie like the parameters.");
    }
  }
  const c10::cuda::CUDAGuard guard(parameters_.device());
  const bool scaled = loss_scale != nullptr;
  take_adamw_step(rule_,
                  {.size = parameters_.numel(),
                   .gradient = gradient.mutable_data_ptr<float>(),
                   .parameters = parameters_.mutable_data_ptr<float>(),
                   .first_moment = first_moment_.mutable_data_ptr<float>(),
                   .second_moment = second_moment_.mutable_data_ptr<float>(),
                   .low_precision = low_precision.defined() ? low_precision.mutable_data_ptr() : nullptr,
                   .low_precision_type = low_precision_type(low_precision),
                   .learning_rate = learning_rate_.const_data_ptr<float>(),
                   .step_count = step_count_.mutable_data_ptr<float>(),
                   .gradient_norm = gradient_norm_.mutable_data_ptr<float>(),
                   .loss_factor = scaled ? loss_scale->factor().const_data_ptr<float>() : nullptr,
                   .overflow = scaled ? loss_scale->overflow().mutable_data_ptr<float>() : nullptr,
                   .memory = static_cast<AdamWMemory*>(kernel_memory_.mutable_data_ptr())},
                  c10::cuda::getCurrentCUDAStream());
}

}  // namespace adtrain
