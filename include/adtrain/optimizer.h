#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/optim/adamw.h>

#include "adtrain/data_parallel.h"

namespace adtrain {

/// torch::optim::AdamW for DataParallel: the same rule and the same options, over all parameters as one
/// tensor. On a GPU a step is two kernels, whatever the number of parameters, and may be captured in a CUDA
/// graph; on the CPU it is libtorch's fused operator.
///
///     adtrain::DataParallel parallel(*network, group);
///     adtrain::FlatAdamW optimizer(parallel, torch::optim::AdamWOptions(1e-3), /*max_grad_norm=*/1.0);
///     for (…) {
///       parallel.backward(loss_of(batch));
///       optimizer.step();
///     }
///
/// Its state is saved and loaded in the form of torch::optim::AdamW's: each can load the other's, also
/// through Checkpoints. It takes the learning rate from param_groups(); other options are those of the
/// constructor. A DataParallel has one at a time and must outlive it. To be used from one thread.
class FlatAdamW : public torch::optim::Optimizer {
 public:
  /// Moves the values of `parallel.main_parameters()` into one tensor, of which they are views from here on.
  /// Handles stay valid, pointers to their memory do not, so capture graphs after this. Gradients whose L2
  /// norm over all parameters is above `max_grad_norm` are scaled down to it, as by clip_grad_norm_; 0 turns
  /// that off. Throws std::invalid_argument where an option is out of its range, or amsgrad is requested.
  explicit FlatAdamW(DataParallel& parallel, torch::optim::AdamWOptions options = {},
                     double max_grad_norm = 0);
  ~FlatAdamW() override;

  /// Updates the main parameters by the flat gradient, which is zero afterwards, and rounds them to the
  /// 16-bit parameters. `closure`, where given, is called first. Throws std::logic_error where param_groups()
  /// is no longer the one group of the beginning.
  at::Tensor step(LossClosure closure = nullptr) override;
  /// The same as set_lr of the only group's options. Steps that are replayed as a CUDA graph follow this call
  /// alone.
  void set_learning_rate(double rate);
  /// L2 norm of the latest gradient before it was scaled down: a scalar on the device.
  const at::Tensor& gradient_norm() const;

  void save(torch::serialize::OutputArchive& archive) const override;
  /// Loads moments, steps and learning rate. Throws c10::Error where the archive is not of AdamW over tensors
  /// of these shapes, all updated equally often; nothing is changed then.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  class Update;
  std::unique_ptr<Update> update_;
};

}  // namespace adtrain
