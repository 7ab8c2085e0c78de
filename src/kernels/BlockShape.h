#pragma once

#include <cstdint>

#include "kernels/primitives/DropoutMask.h"

namespace adtrain::kernels {

/// How many tokens' keys and values a thread block has room for in shared memory.
constexpr int kMostTokens = 256;

struct BlockShape {
  int sequences;  ///< S
  int tokens;     ///< of whole blocks 1 … kMostTokens
  int rows;       ///< R ≤ tokens + queries
  int width;      ///< D
  int heads;      ///< H
  bool causal;    ///< else every token reads all tokens; must be set where there are queries or padding

  int queries = 0;  ///< at most as many as tokens
  /// (S): the first token that is no padding, nor after the place of a query; null for all 0.
  const int* first = nullptr;

  int inner() const { return 4 * width; }
  constexpr int length() const { return tokens + queries; }  ///< of a sequence in x
  /// Of one stream, whose last token's row alone comes out: then neither keys nor values are made, see
  /// last_token/Vectors.cuh.
  bool only_last_token() const { return rows == 1 && queries == 0; }
  int64_t all_rows() const { return int64_t{sequences} * rows; }
  /// Of the dropout mask, see DropoutMasks.
  AttentionRows attention_rows() const { return {int64_t{sequences} * heads, tokens, queries, rows, causal}; }
};

}  // namespace adtrain::kernels
