#pragma once

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "model/Attention.h"
#include "model/LossPositions.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// Compressed rows as tokens, all that a row has behind each other and padding in front of them. With n = T /
/// 2 transitions in a full region there are 2 n + 4 slots for
///
///     padding; <compress>, transitions of the region before, </compress>, if there is one; <compress>,
///     transitions of the query's region,
///
/// and, kLast, in the last one the query, in one stream. kAll: the query's region has its n + 1 transitions,
/// of which nothing reads the last, in the last slots, where n + 1 queries stand as a second stream.
///
/// Nothing reads padding, and positions count only the tokens that a row has: a row means what it would mean
/// alone and without padding.
struct CompressedSequence {
  /// (B, slots but that of a query in the same stream, features + 3): a transition's features, none for
  /// markers, and which TokenType it is, one-hot.
  at::Tensor context;
  at::Tensor queries;    ///< int32 (B, Q): the queries' states
  at::Tensor positions;  ///< int64 (B, tokens of both streams)
  Streams streams;

  /// `type`: of the features. `masks`: whether the streams need theirs.
  static CompressedSequence of(const Batch& batch, const ModelShape& shape, LossPositions positions,
                               at::ScalarType type, bool masks);
};

/// int64 (B, Q): the actions of the queries, −1 where the region ends.
at::Tensor compressed_targets(const Batch& batch, LossPositions positions);

}  // namespace adtrain
