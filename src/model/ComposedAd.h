#pragma once

#include <functional>
#include <optional>
#include <string>

#include "model/AlgorithmDistillation.h"
#include "model/ComposedStack.h"
#include "model/PlainSequence.h"
#include "model/PreviousTokens.h"

namespace adtrain {

/// Algorithm Distillation with blocks of chosen pieces, over transitions and queries (as PreNormAd) or over
/// one causal stream of PreviousTokens, each of which is a query. Plain operators embed and predict, but
/// where the newest of PreviousTokens and its prediction have kernels.
class ComposedAd : public AlgorithmDistillation {
 public:
  ComposedAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory);

  Loss loss(const Batch& batch, LossPositions positions, bool training) override;
  Predictions forward(const Batch& batch, LossPositions positions, bool training) override;
  bool rolling_slides() const override { return stack_.slides(); }
  std::string why_not_rolling() const override { return ""; }
  std::optional<Parts> parts() override;

 protected:
  ImaginationParts imagination_parts() const override;

 private:
  /// What the heads read at the queries (B, Q, width).
  at::Tensor encoded(const Batch& batch, LossPositions positions, bool training) const;
  NewestStep newest_step() const;
  /// How the newest tokens of rows that grow are embedded: a query behind a transition, or PreviousTokens.
  using EmbedStep = std::function<Tokens(const Batch& step)>;
  EmbedStep newest_transition() const;
  EmbedStep newest_previous() const;
  /// The embedded transitions and then the states of the queries; or nothing, where tokens are
  /// PreviousTokens.
  struct TransitionEmbedding {
    Linear context;
    Embedding query_state;

    static TransitionEmbedding of(ParameterFactory& factory, const ModelOptions& options,
                                  const ModelShape& shape);
  };
  Tokens tokens_of(const Batch& batch, LossPositions positions) const;
  at::Tensor embedded(const PlainSequence& sequence) const;

  std::optional<PreviousTokens> previous_;
  TransitionEmbedding transitions_;
  ComposedStack stack_;
  Linear pred_action_;
};

}  // namespace adtrain
