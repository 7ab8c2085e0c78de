#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "training/LossScale.h"
#include "training/TrainingOptions.h"

namespace adtrain {

/// AdamW (Loshchilov and Hutter, 2019) with gradient clipping, over flat buffers: one fused pass over all
/// parameters, on the device, without a host synchronisation. Weight decay applies to every parameter, as in
/// the Python projects.
class Optimizer {
 public:
  /// `parameters`: the model's flat fp32 buffer (n), updated in place; it must outlive the optimizer.
  Optimizer(const at::Tensor& parameters, const TrainingOptions& options);

  /// The rate of the steps that follow. It lives on the device, where a captured step reads it.
  void set_learning_rate(double rate);
  /// One update with the global-batch gradient (n), which is scaled in place where its norm exceeds
  /// max_grad_norm. With `loss_scale` the gradient is first divided by its factor, and where it overflowed
  /// nothing is updated.
  void step(const at::Tensor& gradient, LossScale* loss_scale = nullptr);

  /// L2 norm of the last gradient before clipping: a scalar on the device.
  const at::Tensor& gradient_norm() const { return gradient_norm_; }

  /// The state, for checkpoints: (n), (n) and a scalar, float32; writing into them restores it.
  at::Tensor& first_moment() { return first_moment_; }
  at::Tensor& second_moment() { return second_moment_; }
  at::Tensor& step_count() { return step_count_; }

 private:
  at::Tensor parameters_, first_moment_, second_moment_, step_count_, gradient_norm_, learning_rate_;
  double beta1_, beta2_, epsilon_, weight_decay_, max_grad_norm_;
};

}  // namespace adtrain
