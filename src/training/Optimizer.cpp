#include "training/Optimizer.h"

#include <optional>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace adtrain {

Optimizer::Optimizer(const at::Tensor& parameters, const TrainingOptions& options)
    : parameters_(parameters.detach()),
      first_moment_(at::zeros_like(parameters_)),
      second_moment_(at::zeros_like(parameters_)),
      step_count_(at::zeros({}, parameters_.options())),
      gradient_norm_(at::zeros({}, parameters_.options())),
      // The fused kernels want a float on GPUs and take any type on the CPU.
      learning_rate_(
          at::zeros({}, parameters_.options().dtype(parameters_.is_cuda() ? at::kFloat : at::kDouble))),
      beta1_(options.beta1),
      beta2_(options.beta2),
      epsilon_(options.adam_epsilon),
      weight_decay_(options.weight_decay),
      max_grad_norm_(options.max_grad_norm) {}

void Optimizer::set_learning_rate(double rate) {
  learning_rate_.fill_(rate);
}

void Optimizer::step(const at::Tensor& gradient, LossScale* loss_scale) {
  const at::NoGradGuard no_grad;
  std::optional<at::Tensor> overflow;
  if (loss_scale != nullptr) {
    loss_scale->unscale(gradient);
    overflow = loss_scale->overflow();
  }
  gradient_norm_.copy_(gradient.norm());
  if (max_grad_norm_ > 0) {
    // PyTorch's clip_grad_norm_: the 1e-6 keeps a zero gradient from dividing by zero.
    gradient.mul_((max_grad_norm_ / (gradient_norm_ + 1e-6)).clamp_max(1.0));
  }
  step_count_.add_(1);
  at::_fused_adamw_({parameters_}, {gradient}, {first_moment_}, {second_moment_}, /*max_exp_avg_sqs=*/{},
                    {step_count_}, learning_rate_, beta1_, beta2_, weight_decay_, epsilon_, /*amsgrad=*/false,
                    /*maximize=*/false, /*grad_scale=*/{}, overflow);
  if (overflow) step_count_.sub_(*overflow);  // a skipped step is none
}

}  // namespace adtrain
