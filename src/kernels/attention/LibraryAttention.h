#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/TokenStreams.h"
#include "kernels/rope/Rotary.h"

namespace adtrain::kernels {

/// Scaled dot-product attention by libtorch: by its attention kernels on a GPU, else by operators, which are
/// the definition of what our own kernels compute. Queries (B, heads, rows, head size) of the last tokens,
/// keys and values (B, heads, streams.tokens(), head size), after their rotation -> (B, rows, heads · head
/// size). `streams` need masks.
at::Tensor library_attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                             const TokenStreams& streams, double dropout_rate);
/// The same of queries, keys and values (3, B, heads, streams.tokens(), head size), as a rule a view of a
/// fused projection, of which queries and keys are rotated first; `rotary` of all tokens, or undefined for
/// none.
at::Tensor library_attention(const at::Tensor& qkv, int64_t rows, const TokenStreams& streams,
                             const Rotary& rotary, double dropout_rate);

}  // namespace adtrain::kernels
