#pragma once

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "model/Attention.h"
#include "model/LossPositions.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// Compressed rows as tokens. Rows of different lengths share one layout of slots; with n = T / 2 transitions
/// in a full region it is
///
///     0           <compress>      of the region before
///     1 … n       its transitions
///     n + 1       </compress>
///     n + 2       <compress>      of the query's region
///     n + 3 …     kLast: its n transitions and the query, in one stream
///                 kAll: n + 1 transitions, of which nothing reads the last, and n + 1 queries, in two
///                 streams
///
/// What a row does not use is padding that no token reads, and positions count only the tokens that a row
/// has: a row means what it would mean alone and without padding.
struct CompressedSequence {
  at::Tensor previous;   ///< (B, n, features): the region before
  at::Tensor current;    ///< (B, n or n + 1, features): the query's region
  at::Tensor queries;    ///< int32 (B, Q): the queries' states
  at::Tensor positions;  ///< int64 (B, slots)
  Streams streams;

  /// `type`: of the features.
  static CompressedSequence of(const Batch& batch, const ModelShape& shape, LossPositions positions,
                               at::ScalarType type);
};

/// int64 (B, Q): the actions of the queries, −1 where the region ends.
at::Tensor compressed_targets(const Batch& batch, LossPositions positions);

}  // namespace adtrain
