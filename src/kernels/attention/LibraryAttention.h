#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/TokenStreams.h"
#include "kernels/rope/Rotary.h"

namespace adtrain::kernels {

/// Scaled dot-product attention by libtorch. On a GPU it runs libtorch's attention kernels, else operators,
/// which define what our own kernels compute. Queries (B, heads, rows, head size) of the last tokens, keys
/// and values (B, heads, streams.tokens(), head size), all already rotated -> (B, rows, heads · head size).
/// `streams` must have masks. On a GPU libtorch draws dropout's masks from the device's generator, for all
/// sequences at once.
at::Tensor library_attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                             const TokenStreams& streams, double dropout_rate);
/// The same for queries, keys and values (3, B, heads, streams.tokens(), head size), usually a view of a
/// fused projection. Queries and keys are rotated first. `rotary` covers all tokens, or is undefined for no
/// rotation.
at::Tensor library_attention(const at::Tensor& qkv, int64_t rows, const TokenStreams& streams,
                             const Rotary& rotary, double dropout_rate);

/// Queries or keys (…, tokens, head size) with rotary positions, which are of all these tokens.
at::Tensor rotated(const at::Tensor& x, const Rotary& rotary);

}  // namespace adtrain::kernels
