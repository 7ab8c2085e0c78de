#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "model/Attention.h"
#include "model/Layers.h"
#include "model/LossPositions.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// Plain rows of T transitions as tokens: context transitions, then the queries' states.
/// kLast: transitions 0 … T−2 and one query, in one stream. kAll: transitions 0 … T−1 and T queries, in two
/// streams.
struct PlainSequence {
  at::Tensor features;   ///< (B, context, features) of the context's transitions
  at::Tensor queries;    ///< int32 (B, Q): the queries' states
  at::Tensor positions;  ///< int64 (context + Q): each token's position in its prefix
  TokenStreams streams;  ///< without masks

  /// `type`: of the features.
  static PlainSequence of(const Batch& batch, const ModelShape& shape, LossPositions positions,
                          at::ScalarType type);
};

}  // namespace adtrain
