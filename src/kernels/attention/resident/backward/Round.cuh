#pragma once

#include <cstdint>

#include "kernels/BlockShape.h"
#include "kernels/primitives/Tile.cuh"

namespace adtrain::kernels::backward_pass {

constexpr int kMostWarpTiles = kMostTokens / kWarpTile;

/// One stream of a sequence, which a thread block works on at a time. With two streams the queries come
/// first.
struct Round {
  int sequence;
  bool of_queries;
  int rows;          ///< output rows of the stream, its last ones
  int first_row;     ///< of these, among the sequence's output rows
  int skipped;       ///< tokens before the first output row
  int first_output;  ///< the first warp tile with output rows that is not all padding
  int first_token;   ///< tokens before it are padding

  template <bool Streams, bool Padded>
  __device__ static Round of(const BlockShape& shape, int sequence, bool of_queries) {
    const int of_second = Streams ? min(shape.rows, shape.queries) : 0;
    const int rows = of_queries ? of_second : shape.rows - of_second, skipped = shape.tokens - rows;
    int first_output = (Streams && rows == 0 ? skipped + kWarpTile - 1 : skipped) / kWarpTile,
        first_token = 0;
    if (Padded && shape.first != nullptr && sequence < shape.sequences) {
      first_token = __ldg(shape.first + sequence);
      first_output = max(first_output, first_token / kWarpTile);
    }
    return {sequence, of_queries,   rows,       of_queries ? shape.rows - of_second : 0,
            skipped,  first_output, first_token};
  }
  /// The token's row among the stream's output rows, or the nearest one.
  __device__ int nearest_row(int token) const { return min(max(token - skipped, 0), rows - 1); }
  /// The first output row's index among those of all sequences.
  __device__ int64_t before(const BlockShape& shape) const {
    return int64_t{sequence} * shape.rows + first_row;
  }
};

}  // namespace adtrain::kernels::backward_pass
