#pragma once

#include <map>
#include <string>

#include "kernels/plan/KernelPlan.h"

/// Devices and networks that the tests of plans ask about.
namespace adtrain::testing {

inline constexpr kernels::DeviceTraits kHopper = kernels::DeviceTraits::hopper();
inline constexpr kernels::DeviceTraits kAmpere = {true, 80, 163 * 1024};
inline constexpr kernels::DeviceTraits kCpu = {};

/// The guide's: post-norm, width 64, 4 heads, 240 tokens.
inline kernels::NetworkShape guide() {
  return {.block = kernels::NetworkShape::Block::kPostNorm,
          .width = 64,
          .heads = 4,
          .inner_width = 256,
          .tokens = 240,
          .actions = 5};
}

/// The guide's with other sizes.
inline kernels::NetworkShape wide(int64_t width, int64_t heads, int64_t tokens) {
  kernels::NetworkShape shape = guide();
  shape.width = width;
  shape.heads = heads;
  shape.inner_width = 4 * width;
  shape.tokens = tokens;
  return shape;
}

inline kernels::NetworkShape with_block(kernels::NetworkShape::Block block,
                                        kernels::NetworkShape shape = guide()) {
  shape.block = block;
  return shape;
}

/// By their names.
inline std::map<std::string, kernels::KernelPlan::Part> parts_of(const kernels::KernelPlan& plan) {
  std::map<std::string, kernels::KernelPlan::Part> parts;
  for (const kernels::KernelPlan::Part& part : plan.parts()) parts.emplace(part.name, part);
  return parts;
}

}  // namespace adtrain::testing
