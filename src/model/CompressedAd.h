#pragma once

#include <optional>
#include <string>

#include "model/AlgorithmDistillation.h"
#include "model/PostNormStack.h"

namespace adtrain {

/// Algorithm Distillation with compressed context. A row reads
///
///     <compress> t … t </compress> <compress> t … t query        or, without a region before, <compress> t …
///     t query
///
/// and predicts, at the query, the action or that the region ends here (`</compress>`). Every token but the
/// query gets its type embedding, in training and in rollouts alike.
class CompressedAd : public AlgorithmDistillation {
 public:
  CompressedAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory);

  Predictions forward(const Batch& batch, LossPositions positions, bool training) override;
  std::optional<Parts> parts() override;
  std::string why_not_rolling() const override {
    return "a region that ends gives all tokens of its row other positions";
  }

 private:
  Tokens embedded(const Batch& batch, LossPositions positions) const;
  /// At the queries, of what the blocks return there.
  Predictions predicted(const at::Tensor& read) const;
  /// (width, features + 3): the weight that multiplies a CompressedSequence's context.
  at::Tensor context_weight() const;

  PostNormStack stack_;
};

}  // namespace adtrain
