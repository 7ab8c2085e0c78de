#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "kernels/TokenStreams.h"
#include "kernels/rope/Rotary.h"

namespace adtrain {

/// What tokens read whose queries, keys and values (B, heads, tokens, head size) are given, positions
/// included: (B, tokens, heads · head size). Whoever makes one knows which other keys and values there are.
using Attend =
    std::function<at::Tensor(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value)>;

/// Scaled dot-product attention of the last `rows` tokens over all tokens that they may read. qkv: queries,
/// keys and values (3, B, heads, streams.tokens(), head size), usually a view of a fused projection. Returns
/// (B, rows, heads · head size).
at::Tensor attend(const at::Tensor& qkv, int64_t rows, const TokenStreams& streams, const Rotary& rotary,
                  double dropout_rate);

/// ALiBi's slope of each head h = 0 … H−1, 2^(−8(h+1)/H): fp32 (H) on the device of `like`.
at::Tensor alibi_slopes(int64_t heads, const at::Tensor& like);

/// What ALiBi (Press et al., 2021, arXiv:2108.12409) adds to the scores of head h = 0 … H−1, and −∞ where a
/// token does not read: (1, H, tokens, tokens) of the type and on the device of `like`. The penalty is
/// 2^(−8(h+1)/H) for each position between the two tokens; a query has the position whose place it takes (see
/// TokenStreams), and reads itself. Its own definition of who reads whom: no mask of `streams` is read. Not
/// for padded rows. Of packed rows (B, H, tokens, tokens).
at::Tensor alibi_scores(int64_t heads, const TokenStreams& streams, const at::Tensor& like);

/// The same with what is added to scores, (1, heads, tokens, tokens), instead of streams and rotary
/// positions; by libtorch's scaled_dot_product_attention.
at::Tensor attend_with_scores(const at::Tensor& qkv, int64_t rows, const at::Tensor& added,
                              double dropout_rate);

}  // namespace adtrain
