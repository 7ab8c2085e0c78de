#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "model/Attention.h"
#include "model/kernels/BlockPass.h"

/// The attention of a block that runs by halves, from its input projection's output, by our own kernels: an
/// operation of autograd. `attend` is the definition of what is right.
namespace adtrain::kernels {

/// What stands behind what in the 3 · width columns of the projection's output.
enum class ProjectionOrder {
  kByThirds,  ///< all heads' queries, their keys, their values
  kByHeads    ///< a head's query, key and value, then the next head's
};

/// Why these kernels are not for the attention of so many heads over x (B, streams.tokens(), width), for
/// people; empty where they are. `turns`: whether queries and keys have rotary positions. They need no masks.
std::optional<std::string> why_no_projected_attention(const at::Device& device, at::ScalarType type,
                                                      int64_t width, int64_t heads, bool turns,
                                                      const Streams& streams);

/// What the last `rows` tokens read: projected (B, streams.tokens(), 3 · width) in bf16 -> (B, rows, width).
/// `rotary` for streams.context tokens, or undefined for none; queries of a second stream stand where the
/// tokens stand whose places they take. `draw`: of dropout's bits in the pass, for this place alone.
/// Gradients are dense. Differentiable once.
at::Tensor projected_attention(const at::Tensor& projected, ProjectionOrder order, int64_t rows,
                               const Streams& streams, const Rotary& rotary, int64_t draw,
                               const BlockPass& pass);

/// The same where the last `rows` tokens alone have queries (B, rows, width), and all have keys and values
/// behind each other, by heads each: (B, streams.tokens(), 2 · width).
at::Tensor projected_attention(const at::Tensor& queries, const at::Tensor& keys_and_values,
                               const Streams& streams, const Rotary& rotary, int64_t draw,
                               const BlockPass& pass);

}  // namespace adtrain::kernels
