#pragma once

#include <optional>
#include <string>

#include "model/AlgorithmDistillation.h"
#include "model/PlainSequence.h"
#include "model/PostNormStack.h"
#include "model/RollingParts.h"

namespace adtrain {

/// The model of Algorithm Distillation with the post-norm block and learned positions. Transitions also get a
/// transition's token type embedding; the query gets none. Where fused kernels fit, they embed the tokens and
/// compute the loss.
class PostNormAd : public AlgorithmDistillation {
 public:
  PostNormAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory);

  Loss loss(const Batch& batch, LossPositions positions, bool training) override;
  Predictions forward(const Batch& batch, LossPositions positions, bool training) override;
  std::string why_not_rolling() const override { return ""; }
  std::optional<Parts> parts() override;

 protected:
  ImaginationParts imagination_parts() const override;

 private:
  /// Tokens (…, width) of transitions' features, without positions.
  at::Tensor transitions_of(const at::Tensor& features) const;
  /// Embedded tokens (B, context + queries, width) without their positions.
  at::Tensor tokens_without_positions(const PlainSequence& sequence) const;
  Tokens tokens_of(const Batch& batch, LossPositions positions) const;
  NewestStep newest_step() const;
  Tokens embedded(const Batch& batch, LossPositions positions) const;
  /// The blocks' output at the queries (B, Q, width).
  at::Tensor encoded(const Batch& batch, LossPositions positions, bool training) const;

  PostNormStack stack_;
};

}  // namespace adtrain
