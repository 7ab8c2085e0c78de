#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/rope/Rotary.h"

/// Rope as separate kernels, for blocks by sublayers with libtorch's attention, or our own that streams keys
/// and values. What Norm.h says about its functions holds here too. Other kernels rotate queries and keys
/// themselves: whole blocks by block/forward/PreNorm.cuh forward and RopeAngles.cuh backward, resident-KV
/// attention by RopeAngles.cuh and GroupTile.cuh.
namespace adtrain::kernels {

/// Whether apply_rope supports heads of this size.
bool rope_fits(int64_t head_size);
/// Rotates the queries and keys in `projected` (B, tokens, heads, 3, head size) in place. It is dense.
/// `rotary` covers the context; queries of a second stream take the angles of the last context tokens.
void apply_rope(const at::Tensor& projected, const Rotary& rotary);
/// From the gradients of rotated queries (B, the last rows, heads, head size), of rotated keys and of values
/// (B, tokens, heads, head size) to the gradient of `projected`. Tokens without a query get a zero gradient.
at::Tensor apply_rope_backward(const at::Tensor& d_queries, const at::Tensor& d_keys,
                               const at::Tensor& d_values, const Rotary& rotary);

}  // namespace adtrain::kernels
