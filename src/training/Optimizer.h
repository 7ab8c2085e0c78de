#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/optimizer/AdamWKernel.h"
#include "training/LossScale.h"
#include "training/TrainingOptions.h"

namespace adtrain {

/// AdamW (Loshchilov and Hutter, 2019) with gradient clipping, over flat buffers on the device, without host
/// synchronisation. Weight decay applies to every parameter, as in the Python projects. torch's operators,
/// which run on the CPU, define the update; on GPUs AdamWKernel computes the same.
class Optimizer {
 public:
  /// `parameters`: the model's flat fp32 buffer (n), updated in place.
  Optimizer(const at::Tensor& parameters, const TrainingOptions& options);

  /// Sets the rate of the following steps. It is stored on the device, where a captured step reads it.
  void set_learning_rate(double rate);
  /// One update with the global-batch gradient (n), which is zero afterwards, ready for the next step's sums.
  /// With `loss_scale` the gradient is first divided by its factor, and where it overflowed nothing is
  /// updated. `low_precision` (n), of a 16-bit type, also receives the rounded parameters; undefined for
  /// none.
  void step(const at::Tensor& gradient, LossScale* loss_scale = nullptr,
            const at::Tensor& low_precision = {});

  /// Of both moments.
  int64_t bytes() const { return static_cast<int64_t>(first_moment_.nbytes() + second_moment_.nbytes()); }

  /// L2 norm of the last gradient before clipping: a scalar on the device.
  const at::Tensor& gradient_norm() const { return gradient_norm_; }

  /// The state, for checkpoints: (n), (n) and a scalar, float32; writing into them restores it.
  at::Tensor& first_moment() { return first_moment_; }
  at::Tensor& second_moment() { return second_moment_; }
  at::Tensor& step_count() { return step_count_; }

 private:
  void step_by_operators(const at::Tensor& gradient, LossScale* loss_scale, const at::Tensor& low_precision);
  void step_by_kernels(const at::Tensor& gradient, LossScale* loss_scale, const at::Tensor& low_precision);

  at::Tensor parameters_, first_moment_, second_moment_, step_count_, gradient_norm_, learning_rate_;
  at::Tensor kernel_memory_;  ///< an AdamWMemory as bytes; undefined on the CPU
  AdamWRule rule_;
};

}  // namespace adtrain
