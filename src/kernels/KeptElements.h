#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"

namespace adtrain::kernels {

/// Which elements of a matrix dropout keeps.
struct KeptElements {
  at::Tensor bits;  ///< bytes; bit i of byte v is set where element 8 v + i is kept; undefined: all are kept
  float scale = 1;  ///< multiplies the kept elements
};

/// Draws the dropout mask of `count` hidden elements of a block, rows of the pass's sequences. `number`: as
/// in BlockPass.
KeptElements kept_elements(const BlockPass& pass, int64_t count, int64_t number);
/// The same for up to MaskMatrices::kMost matrices with one number. Each matrix's mask begins at a word.
std::vector<KeptElements> kept_elements(const BlockPass& pass, at::IntArrayRef counts, int64_t number);

}  // namespace adtrain::kernels
