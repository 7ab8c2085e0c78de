#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/TokenStreams.h"

namespace adtrain {

/// Rotary positions: a pair of features i and i + head size / 2 is rotated by position · base^(−2i / head
/// size).
struct Rotary {
  at::Tensor cosines;  ///< fp32 (tokens, head size / 2); undefined for no rotary positions
  at::Tensor sines;

  /// `positions`: int64 (tokens).
  static Rotary of(const at::Tensor& positions, int64_t head_size);
  /// From that of a context to that of all tokens: queries are rotated as the tokens whose places they take.
  Rotary with_queries(const TokenStreams& streams) const;
};

}  // namespace adtrain
