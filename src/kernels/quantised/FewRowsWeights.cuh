#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/primitives/ConstantWords.cuh"
#include "kernels/primitives/RowVectors.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/QuantisedKernels.h"

/// What the lanes of FewRows have of weights.
namespace adtrain::kernels {

/// A lane's 16 codes of a row.
template <WeightForm kForm>
struct LaneCodes {
  static constexpr int kColumns = 16;
  using Words = std::conditional_t<kForm == WeightForm::kEightBits, uint4, uint2>;
  Words words;

  /// `first`: the index of the first in the flattened weights.
  __device__ static LaneCodes load(const QuantisedWeights& weights, uint32_t first) {
    return {__ldcs(static_cast<const Words*>(weights.codes) + first / kColumns)};
  }
  /// Pair 0 … 7, in 16 bit.
  template <class Short>
  __device__ uint32_t pair(int number, const AlignedPairTable& table) const {
    if constexpr (kForm == WeightForm::kEightBits) {
      return pair_of_codes<Short>(word_of(words, number / 2), number % 2 == 0 ? 0x4140 : 0x4342);
    } else {
      return table.pair(number < 4 ? words.x : words.y, number % 4);
    }
  }
};

/// What a lane has of the weights for 64 columns, as they lie in memory: two features of each tile.
template <WeightForm kForm, int kTiles>
struct StoredWeights {
  LaneCodes<kForm> codes[kTiles][2];
  StoredScale<kForm> scales[kTiles][2];
};

/// The same as the left operands of products, and what their sums are multiplied with: of 8 bits nothing.
template <int kTiles>
struct WeightOperands {
  LeftFragment left[kTiles][kProducts];
  float scales[kTiles][2];

  /// Keeps the compiler from making operands where they are used.
  __device__ void make_here() {
#pragma unroll
    for (int i = 0; i < kTiles * kProducts; ++i) {
#pragma unroll
      for (uint32_t& part : left[i / kProducts][i % kProducts].part) part = made_here(part);
    }
  }
};

}  // namespace adtrain::kernels
