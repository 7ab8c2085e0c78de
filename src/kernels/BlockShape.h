#pragma once

#include <cstdint>

#include "kernels/primitives/DropoutMask.h"

namespace adtrain::kernels {

/// The most tokens whose keys and values fit in a thread block's shared memory.
constexpr int kMostTokens = 256;

struct BlockShape {
  int sequences;  ///< S
  int tokens;     ///< 1 … kMostTokens for kernels of whole blocks
  int rows;       ///< R ≤ tokens + queries
  int width;      ///< D
  int heads;      ///< H
  bool causal;    ///< else every token reads all tokens; must be true where there are queries or padding

  int queries = 0;  ///< at most as many as tokens
  /// (S): the index of each sequence's first token that is not padding, at most the first query's position,
  /// and less where MultiheadAttention::is_streaming(); null where no sequence has padding.
  const int* first = nullptr;

  int inner() const { return 4 * width; }
  constexpr int length() const { return tokens + queries; }  ///< rows per sequence in x
  /// Whether there is one stream and only its last token's row is computed. Then keys and values are not
  /// computed; see last_token/LastTokenBlock.cuh.
  bool only_last_token() const { return rows == 1 && queries == 0; }
  int64_t all_rows() const { return int64_t{sequences} * rows; }
  /// The rows of the attention's dropout mask; see DropoutMasks.
  constexpr AttentionRows attention_rows() const {
    return {int64_t{sequences} * heads, tokens, queries, rows, causal};
  }
};

}  // namespace adtrain::kernels
