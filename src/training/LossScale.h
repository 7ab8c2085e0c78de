#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// Dynamic loss scaling for fp16: small gradients would underflow in 16 bits, so the loss is multiplied by a
/// factor before the backward pass and the gradient divided by it afterwards. Where a scaled gradient
/// overflows, the step is skipped and the scale halved; after 2 000 steps without overflow it is doubled (the
/// rule of torch.amp.GradScaler).
///
/// All of it is on the device: the host does not wait, and a CUDA graph may capture it. Ranks agree without
/// communication, because they check the gradient summed over all of them, or, where each has the sums of its
/// shard alone, by the optimizer's.
class LossScale {
 public:
  explicit LossScale(at::Device device);
  /// Null for types whose gradients need no scaling: all but fp16.
  static std::unique_ptr<LossScale> for_type(at::ScalarType type, at::Device device);

  /// fp32 scalar: the factor on the loss.
  at::Tensor factor() const { return state_[0]; }
  /// Divides a gradient, as one tensor or several, by the factor, in place, and checks it for non-finite
  /// values.
  void unscale(at::TensorList gradient);
  /// fp32 scalar: 1 where the latest gradient held such values, else 0. Written by unscale(), or by the
  /// kernel that replaces it.
  at::Tensor& overflow() { return overflow_; }
  /// Counts a step, at its end, and adapts the factor.
  void update();

  /// Whether the factor has fallen below any useful value (2⁻¹³, from 2¹⁶ at the start). Then some thirty
  /// more steps were skipped than it could recover from, so that not the scale overflows but the model.
  /// Synchronises with the device.
  bool exhausted() const;
  /// Steps that were skipped since the beginning of the run. Synchronises with the device.
  int64_t skipped_steps() const { return state_[2].item<int64_t>(); }

  /// fp32 (3), for checkpoints: factor, steps since it was changed, skipped steps. Writing into it restores
  /// it.
  const at::Tensor& state() const { return state_; }

 private:
  at::Tensor state_, overflow_;
};

}  // namespace adtrain
