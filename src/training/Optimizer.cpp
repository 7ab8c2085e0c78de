#include "training/Optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace adtrain {

Optimizer::Optimizer(const at::Tensor& parameters, const TrainingOptions& options)
    : parameters_(parameters.detach()),
      first_moment_(at::zeros_like(parameters_)),
      second_moment_(at::zeros_like(parameters_)),
      step_count_(at::zeros({}, parameters_.options())),
      gradient_norm_(at::zeros({}, parameters_.options())),
      beta1_(options.beta1),
      beta2_(options.beta2),
      epsilon_(options.adam_epsilon),
      weight_decay_(options.weight_decay),
      max_grad_norm_(options.max_grad_norm) {}

void Optimizer::step(const at::Tensor& gradient, double learning_rate) {
  const at::NoGradGuard no_grad;
  gradient_norm_ = gradient.norm();
  if (max_grad_norm_ > 0) {
    // PyTorch's clip_grad_norm_: the 1e-6 keeps a zero gradient from dividing by zero.
    gradient.mul_((max_grad_norm_ / (gradient_norm_ + 1e-6)).clamp_max(1.0));
  }
  step_count_.add_(1);
  at::_fused_adamw_({parameters_}, {gradient}, {first_moment_}, {second_moment_}, /*max_exp_avg_sqs=*/{},
                    {step_count_}, learning_rate, beta1_, beta2_, weight_decay_, epsilon_, /*amsgrad=*/false,
                    /*maximize=*/false);
}

}  // namespace adtrain
