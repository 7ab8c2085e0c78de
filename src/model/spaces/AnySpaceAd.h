#pragma once

#include "model/AlgorithmDistillation.h"
#include "model/ComposedStack.h"
#include "model/spaces/ActionHead.h"
#include "model/spaces/StepTokens.h"

namespace adtrain {

/// Algorithm Distillation over tasks of any space: one causal stream of StepTokens through blocks of chosen
/// pieces, every token of which is a query. It reads rows of any space (see Batch). Plain operators compute
/// it.
class AnySpaceAd : public AlgorithmDistillation {
 public:
  /// shape.spaces must be there. Throws ConfigError where `options` do not fit them.
  static std::unique_ptr<AnySpaceAd> create(const ModelOptions& options, const ModelShape& shape,
                                            ParameterFactory factory);
  /// `options` are of_own_tasks and fit.
  AnySpaceAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory);

  Loss loss(const Batch& batch, LossPositions positions, bool training) override;
  Predictions forward(const Batch& batch, LossPositions positions, bool training) override;
  Rolling rolling() override;
  std::string why_not_rolling() const override;

 private:
  StepTokens tokens_;
  ComposedStack stack_;
  ActionHead head_;
};

}  // namespace adtrain
