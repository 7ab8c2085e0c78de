#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/BlockShape.h"

/// A post-norm block that outputs one row per sequence, that of its last token: the last block of a network
/// whose loss reads no other token. With one query per head, keys and values need not be computed, because (x
/// · Wkᵀ) q = x · (Wkᵀ q) and Σ a (x · Wvᵀ) = (Σ a x) · Wvᵀ:
///
///     q = Wq x_last + bq,   u_h = Wk_hᵀ q_h / √d              d: the size of head h
///     s_hj = x_j · u_h + q_h · bk_h / √d,   a_hj = drop(softmax_j(s_hj))
///     o_h = Wv_h Σ_j a_hj x_j + bv_h Σ_j a_hj                 o: the attention output
///
/// So a sequence's x is read from global memory once.
namespace adtrain::kernels::last_token {

/// Whether bit `number` is set in these words. Without dropout the result is always true.
template <bool Dropout>
__device__ bool is_kept(const uint32_t* words, int64_t number) {
  return !Dropout || (__ldg(words + number / 32) >> (number % 32) & 1) != 0;
}

/// Calls launch(width, head size) with compile-time constants.
template <class Launch>
void for_shape(const BlockShape& shape, const Launch& launch) {
  const auto for_width = [&](auto width) {
    switch (shape.width / shape.heads) {
      case 8:
        return launch(width, std::integral_constant<int, 8>());
      case 16:
        return launch(width, std::integral_constant<int, 16>());
      default:
        return launch(width, std::integral_constant<int, 32>());
    }
  };
  if (shape.width == 64) return for_width(std::integral_constant<int, 64>());
  for_width(std::integral_constant<int, 32>());
}

}  // namespace adtrain::kernels::last_token
