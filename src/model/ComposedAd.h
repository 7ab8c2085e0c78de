#pragma once

#include <optional>
#include <vector>

#include "model/AlgorithmDistillation.h"
#include "model/ComposedBlock.h"
#include "model/PreviousTokens.h"

namespace adtrain {

/// Algorithm Distillation with blocks of chosen pieces, over transitions and queries (as PreNormAd) or over
/// one causal stream of PreviousTokens, each of which is a query. Plain operators compute it.
class ComposedAd : public AlgorithmDistillation {
 public:
  ComposedAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory);

  Predictions forward(const Batch& batch, LossPositions positions, bool training) override;

 private:
  /// The embedded transitions and then the states of the queries; or nothing, where tokens are
  /// PreviousTokens.
  struct TransitionEmbedding {
    Linear context;
    Embedding query_state;
  };
  Tokens tokens_of(const Batch& batch, LossPositions positions) const;
  /// Each token's position in its prefix: int64 (tokens).
  at::Tensor positions_of(const Tokens& tokens) const;
  TokenOrder order_of(const Tokens& tokens) const;

  PositionKind position_kind_;
  std::optional<PreviousTokens> previous_;
  TransitionEmbedding transitions_;
  at::Tensor learned_positions_;  ///< (n_transit, width); undefined for other positions
  std::vector<ComposedBlock> blocks_;
  ChosenNorm final_norm_;  ///< undefined for none
  Linear pred_action_;
};

}  // namespace adtrain
