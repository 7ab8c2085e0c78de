#pragma once

#include "model/AlgorithmDistillation.h"
#include "model/PostNormStack.h"

namespace adtrain {

/// The model of Algorithm Distillation with the post-norm block and learned positions. Transitions also get
/// the token type embedding of a transition, the query gets none.
class PostNormAd : public AlgorithmDistillation {
 public:
  PostNormAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory);

  Predictions forward(const Batch& batch, LossPositions positions, bool training) override;

 private:
  PostNormStack stack_;
};

}  // namespace adtrain
