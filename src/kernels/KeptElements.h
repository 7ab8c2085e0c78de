#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"

namespace adtrain::kernels {

/// Which elements of a matrix dropout keeps.
struct KeptElements {
  at::Tensor bits;  ///< bytes, bit i of byte v set where element 8 v + i is kept; undefined where all are
  float scale = 1;  ///< of what is kept
};

/// Dropout of `count` elements of a block's hidden values, draw `number` of the pass.
KeptElements kept_elements(const BlockPass& pass, int64_t count, int64_t number);
/// The same of several matrices at one offset of the random stream: the mask of each begins with a word.
std::vector<KeptElements> kept_elements(const BlockPass& pass, at::IntArrayRef counts, int64_t number);

}  // namespace adtrain::kernels
