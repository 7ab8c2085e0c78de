#pragma once

#include "model/AlgorithmDistillation.h"
#include "model/PostNormStack.h"

namespace adtrain {

/// The model of Algorithm Distillation with the post-norm block and learned positions. Transitions also get
/// the token type embedding of a transition, the query gets none. Where our own kernels fit, they embed the
/// tokens and read the loss.
class PostNormAd : public AlgorithmDistillation {
 public:
  PostNormAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory);

  Loss loss(const Batch& batch, LossPositions positions, bool training) override;
  Predictions forward(const Batch& batch, LossPositions positions, bool training) override;
  std::optional<std::string> why_not_fused(LossPositions positions) const override;

 private:
  Tokens tokens_of(const Batch& batch, LossPositions positions) const;
  Tokens tokens_by_kernel(const Batch& batch, LossPositions positions) const;
  /// The queries behind the blocks (B, Q, width).
  at::Tensor encoded(const Batch& batch, LossPositions positions, bool training) const;

  PostNormStack stack_;
};

}  // namespace adtrain
