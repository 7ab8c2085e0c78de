#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "model/ModelOptions.h"
#include "model/kernels/fused/BlockTensors.h"

/// Which transformer blocks run as one operation, post-norm and pre-norm.
namespace adtrain::kernels {

/// Why there are no kernels for the blocks of a network with these options, on this device and with
/// parameters of this type, where a stream has at most so many tokens; for people. Empty where there are.
std::optional<std::string> why_no_fused_blocks(const ModelOptions& options, int64_t tokens,
                                               const at::Device& device, at::ScalarType type);

/// The shape of a block with input x (B, tokens + queries, width) whose last `rows` rows come out.
BlockShape fused_shape(const at::Tensor& x, int64_t heads, int64_t queries, int64_t rows);

}  // namespace adtrain::kernels
