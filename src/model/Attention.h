#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/TokenStreams.h"
#include "kernels/rope/Rotary.h"

namespace adtrain {

/// Scaled dot-product attention of the last `rows` tokens over all tokens that they may read. qkv: queries,
/// keys and values (3, B, heads, streams.tokens(), head size), usually a view of a fused projection. Returns
/// (B, rows, heads · head size).
at::Tensor attend(const at::Tensor& qkv, int64_t rows, const TokenStreams& streams, const Rotary& rotary,
                  double dropout_rate);

}  // namespace adtrain
