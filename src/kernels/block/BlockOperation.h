#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/BlockShape.h"

namespace adtrain::kernels {

/// The shape of a block with input x (B, tokens + queries, width) that outputs its last `rows` rows.
inline BlockShape block_shape(const at::Tensor& x, int64_t heads, int64_t queries, int64_t rows) {
  return {static_cast<int>(x.size(0)), static_cast<int>(x.size(1) - queries),
          static_cast<int>(rows),      static_cast<int>(x.size(2)),
          static_cast<int>(heads),     /*causal=*/true,
          static_cast<int>(queries)};
}

}  // namespace adtrain::kernels
