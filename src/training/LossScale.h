#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// Dynamic loss scaling for fp16: small gradients would vanish in 16 bits, so the loss is multiplied before
/// the backward pass, and the gradient divided again. Where a scaled gradient overflows, the step is skipped
/// and the scale halved; after 2 000 steps without overflow it is doubled (the rule of torch.amp.GradScaler).
///
/// All of it lives on the device: nothing waits for it and a CUDA graph may capture it. Ranks agree without a
/// word, because the gradient that is looked at is the sum over all of them.
class LossScale {
 public:
  explicit LossScale(at::Device device);
  /// None where gradients of this type need no scaling: all but fp16.
  static std::unique_ptr<LossScale> for_type(at::ScalarType type, at::Device device);

  /// fp32 scalar: the factor on the loss.
  at::Tensor factor() const { return state_[0]; }
  /// Divides a gradient (n) by the factor, in place, and looks for values that are not finite.
  void unscale(const at::Tensor& gradient);
  /// fp32 scalar: 1 where the latest gradient held such values, else 0. Written by unscale(), or by the
  /// kernel that does its work.
  const at::Tensor& overflow() const { return overflow_; }
  /// At the end of a step: counts it and adapts the factor.
  void update();

  /// Whether the factor has fallen below any that helps (2⁻¹³, where it began with 2¹⁶): some thirty steps
  /// more were skipped than it could make up for, so that it is not the scale that overflows but the model.
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
