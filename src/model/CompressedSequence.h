#pragma once

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "model/Attention.h"
#include "model/LossPositions.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// Compressed rows as tokens: a row's tokens are contiguous, with padding in front of them. With n = T / 2
/// transitions in a full region there are 2 n + 4 slots for
///
///     padding; <compress>, transitions of the region before, </compress>, if there is one; <compress>,
///     transitions of the query's region,
///
/// and, kLast, in the last one the query, in one stream. kAll: the query's region has its n + 1 transitions,
/// of which nothing reads the last, in the last slots, where n + 1 queries stand as a second stream.
///
/// Nothing reads padding, and positions count only a row's own tokens: a row gives the same result as alone
/// and without padding.
struct CompressedSequence {
  /// (B, slots without that of a query in the same stream, features + 3): a transition's features (zero for
  /// markers) and its one-hot TokenType.
  at::Tensor context;
  at::Tensor queries;    ///< int32 (B, Q): the queries' states
  at::Tensor positions;  ///< int64 (B, tokens of both streams)
  TokenStreams streams;

  /// `type`: of the features.
  static CompressedSequence of(const Batch& batch, const ModelShape& shape, LossPositions positions,
                               at::ScalarType type);
};

/// int64 (B, Q): the actions of the queries, −1 where the region ends.
at::Tensor compressed_targets(const Batch& batch, LossPositions positions);

}  // namespace adtrain
