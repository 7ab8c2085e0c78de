#pragma once

#include <cstdint>
#include <vector>

#include "kernels/encoder/SymbolicEncoder.h"

namespace adtrain::kernels {

/// An encoder of grids of cells of whole numbers, whose digits have embeddings of 64 features each: three
/// convolutions of 32 channels and a linear layer follow.
struct SymbolGrid {
  int64_t height, width;
  std::vector<int64_t> values;  ///< of each digit, the most significant first
  bool packed;                  ///< a number holds all digits of a cell
  int64_t features;             ///< that the linear layer makes

  /// Whether the linear layer is the kernels', too. Else they give what it takes.
  bool has_fused_linear() const {
    constexpr int64_t kAway = SymbolicEncoderShape::kConvolutions;
    return features == SymbolicEncoderShape::kFeatures &&
           (height - kAway) * (width - kAway) <= SymbolicEncoderShape::kMostLinearPlaces;
  }
  /// Of at most SymbolicEncoderShape::kMostDigits digits.
  SymbolicEncoderShape shape(int64_t tokens, ShortType type) const {
    SymbolicEncoderShape shape = {.tokens = tokens,
                                  .height = static_cast<int>(height),
                                  .width = static_cast<int>(width),
                                  .digits = static_cast<int>(values.size()),
                                  .values = {},
                                  .linear = has_fused_linear(),
                                  .type = type};
    for (size_t digit = 0; digit < values.size(); ++digit)
      shape.values[digit] = static_cast<int>(values[digit]);
    return shape;
  }
};

}  // namespace adtrain::kernels
