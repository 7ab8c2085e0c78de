#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/rope/Rotary.h"

/// Rope as kernels of its own, for blocks by sublayers with libtorch's attention; as Norm.h says of its
/// functions. Other kernels rotate queries and keys within: whole blocks by block/forward/PreNorm.cuh forward
/// and RopeAngles.cuh backward, resident attention by RopeAngles.cuh.
namespace adtrain::kernels {

/// Whether apply_rope takes heads of this size.
bool rope_fits(int64_t head_size);
/// Rotates queries and keys by heads in `projected` (B, tokens, heads, 3, head size), which is
/// dense, where they stand. `rotary`: of all tokens.
void apply_rope(const at::Tensor& projected, const Rotary& rotary);
/// From the gradients of rotated queries (B, the last rows, heads, head size), of rotated keys and of values
/// (B, tokens, heads, head size) to that of `projected`.
at::Tensor apply_rope_backward(const at::Tensor& d_queries, const at::Tensor& d_keys,
                               const at::Tensor& d_values, const Rotary& rotary);

}  // namespace adtrain::kernels
