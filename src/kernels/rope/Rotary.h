#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/TokenStreams.h"

namespace adtrain {

/// Rotary positions: features i and i + head size / 2 form a pair, which is rotated by position · base^(−2i /
/// head size).
struct Rotary {
  /// fp32 (tokens, head size / 2), of packed rows (B, 1, tokens, head size / 2); undefined without rotary
  /// positions.
  at::Tensor cosines;
  at::Tensor sines;

  /// `positions`: int64 (tokens), of packed rows (B, 1, tokens).
  static Rotary of(const at::Tensor& positions, int64_t head_size);
  /// Extends the angles of a context to all tokens. Queries get the angles of the tokens whose positions they
  /// take.
  Rotary with_queries(const TokenStreams& streams) const;
};

}  // namespace adtrain
