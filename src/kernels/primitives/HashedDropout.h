#pragma once

#include <cmath>
#include <cstdint>

#include "base/Random.h"

/// Dropout whose masks are not stored: whether an element is kept is a function of its row's key and of its
/// column, which a backward pass computes again. For the CPU and for GPUs, which keep the same elements.
namespace adtrain::kernels {

/// What the probability of dropping an element, 0 … 1, says about each.
struct DropoutRate {
  explicit DropoutRate(double dropped)
      : rate(dropped),
        scale(dropped < 1 ? static_cast<float>(1 / (1 - dropped)) : 0.0F),
        last_kept(static_cast<uint32_t>(std::fmax(std::round((1 - dropped) * 0x1p32) - 1, 0))) {}

  double rate;
  float scale;         ///< of kept elements, so that the mean is preserved
  uint32_t last_kept;  ///< the largest random word that keeps an element
};

/// The key of a row of one call of dropout. `call`: seed_of(seed, place) of its DropoutDraw. `row`: of all
/// rows of the global batch.
constexpr uint64_t dropout_row_key(uint64_t call, int64_t row) {
  return seed_of(call, row);
}

/// The random words of a row's columns, of one or of several at once. Wellons' integer hash "lowbias32", with
/// the upper half of the row's key between its two rounds.
template <class Words>
constexpr Words dropout_words(uint64_t row_key, Words columns) {
  const auto lower = static_cast<uint32_t>(row_key), upper = static_cast<uint32_t>(row_key >> 32);
  Words words = columns + lower;
  words = (words ^ (words >> 16)) * 0x7feb352dU;
  return (words ^ (words >> 15) ^ upper) * 0x846ca68bU;
}

}  // namespace adtrain::kernels
