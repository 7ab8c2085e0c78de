#pragma once

#include "kernels/BlockShape.h"
#include "kernels/plan/KernelPlan.h"

namespace adtrain::testing {

/// Whether a plan takes our own attention for such blocks.
inline bool own_attention_fits(const kernels::BlockShape& shape, bool has_rope, bool padded,
                               const at::Device& device, at::ScalarType type) {
  using Block = kernels::NetworkShape::Block;
  const kernels::NetworkShape network = {.block = has_rope ? Block::kPreNorm : Block::kPostNorm,
                                         .width = shape.width,
                                         .heads = shape.heads,
                                         .inner_width = shape.inner(),
                                         .tokens = shape.tokens,
                                         .actions = 5,
                                         .padded = padded,
                                         .two_streams = shape.queries > 0};
  return kernels::KernelPlan(network, kernels::DeviceTraits::of(device), type).own_attention();
}

}  // namespace adtrain::testing
