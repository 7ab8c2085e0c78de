#include "model/kernels/fused/FusedShapes.h"

#include <algorithm>
#include <array>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "model/kernels/gpu/DeviceSupport.h"

namespace adtrain::kernels {
namespace {

/// {width, head size}: those that the kernels are instantiated for.
constexpr std::array<std::array<int64_t, 2>, 6> kShapes = {
    {{32, 8}, {32, 16}, {32, 32}, {64, 8}, {64, 16}, {64, 32}}};

}  // namespace

std::optional<std::string> why_no_fused_blocks(const ModelOptions& options, int64_t tokens,
                                               const at::Device& device, at::ScalarType type) {
  if (options.fused_kernels == FusedKernels::kOff) return "fused_kernels is off";
  if (auto why = why_no_fused_kernels(device)) return why;
  if (type != at::kBFloat16) return "they are for mixed_precision: bf16";
  const std::array<int64_t, 2> shape = {options.tf_n_embd, options.head_size()};
  if (std::find(kShapes.begin(), kShapes.end(), shape) == kShapes.end()) {
    return fmt::format(
        "there are none for width {} with heads of {}; they are for width 32 or 64 and heads of 8, 16 or "
        "32",
        shape[0], shape[1]);
  }
  if (options.inner_width() != 4 * options.tf_n_embd) {
    return fmt::format("the MLP is {} wide; they are for four times the width", options.inner_width());
  }
  if (tokens > kMostTokens) {
    return fmt::format("sequences have {} tokens; they are for at most {}", tokens, kMostTokens);
  }
  return std::nullopt;
}

BlockShape fused_shape(const at::Tensor& x, int64_t heads, int64_t queries, int64_t rows) {
  return {static_cast<int>(x.size(0)), static_cast<int>(x.size(1) - queries),
          static_cast<int>(rows),      static_cast<int>(x.size(2)),
          static_cast<int>(heads),     /*causal=*/true,
          static_cast<int>(queries)};
}

}  // namespace adtrain::kernels
