#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "kernels/BlockShape.h"

/// The layout of a head's dS, the gradients of the scores of queries for the keys that they read. It consists
/// of tiles of 16 queries × 16 keys, the lower triangle of the square of all tokens' warp tiles of 16. A warp
/// tile of queries has contiguous tiles, from the first keys to its own. Warp tiles follow one another in
/// whole blocks of 64 tokens, from the first to the last block that has queries.
namespace adtrain::kernels {

struct ScoreTiles {
  static constexpr int kSide = 16, kElements = kSide * kSide, kBlock = 64;

  int first, end;  ///< warp tiles of queries
  int skipped;     ///< tiles of the warp tiles before `first`
  int of_head;     ///< tiles per head

  static ScoreTiles of(const BlockShape& shape) {
    constexpr int kWarpTiles = kBlock / kSide;
    const int first = (shape.tokens - shape.rows) / kBlock * kWarpTiles,
              end = (shape.tokens + kBlock - 1) / kBlock * kWarpTiles;
    return {first, end, before(first), before(end) - before(first)};
  }

  __host__ __device__ bool has(int queries, int keys) const {
    return queries >= first && queries < end && keys <= queries;
  }
  /// The index of a tile among the head's tiles.
  __host__ __device__ int place(int queries, int keys) const { return before(queries) - skipped + keys; }

  /// How many heads' bf16 tiles fit in 2 GiB; at least one. The fewer heads go together, the longer the GPU
  /// is partly idle at the end of each group's kernels.
  int heads_together(const BlockShape& shape) const {
    constexpr int64_t kMostTiles = (int64_t{2} << 30) / (2 * kElements);
    const int64_t heads = std::min(int64_t{shape.sequences} * shape.heads, kMostTiles / of_head);
    return static_cast<int>(std::max<int64_t>(heads, 1));
  }

 private:
  __host__ __device__ static int before(int queries) { return queries * (queries + 1) / 2; }
};

}  // namespace adtrain::kernels
