#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "distributed/GradientSink.h"
#include "model/ModelOptions.h"
#include "model/kernels/KeepBits.h"
#include "model/kernels/fused/BlockTensors.h"

/// What whole transformer blocks by our own GPU kernels have in common, post-norm and pre-norm.
namespace adtrain::kernels {

/// Why there are no kernels for the blocks of a network with these options, on this device and with
/// parameters of this type, where a context has so many tokens; for people. Empty where there are.
std::optional<std::string> why_no_fused_blocks(const ModelOptions& options, int64_t tokens,
                                               const at::Device& device, at::ScalarType type);

/// What the blocks of one forward pass have in common.
struct FusedPass {
  /// `like`: a tensor on the GPU. The seed of dropout is drawn from the default generator of its device.
  FusedPass(const at::Tensor& like, int64_t heads, double attention_rate, double hidden_rate,
            GradientSink* sink);

  /// Of a block with input x (B, tokens + queries, width) whose last `rows` rows come out.
  BlockShape shape_of(const at::Tensor& x, int64_t queries, int64_t rows) const;
  /// int32 (count) words of dropout's bits, another draw for each `number`; undefined where everything is
  /// kept everywhere.
  at::Tensor keep_bits(KeepProbability probability, int64_t count, int64_t number) const;

  int64_t heads;
  KeepProbability keep_attention, keep_hidden;
  at::Tensor seed;     ///< int64 (1) on the GPU: of dropout; undefined where everything is kept
  GradientSink* sink;  ///< null: parameters get their gradients from autograd, in their own type
};

}  // namespace adtrain::kernels
