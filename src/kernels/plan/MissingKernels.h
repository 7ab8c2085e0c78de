#pragma once

#include <optional>
#include <string>

#include <c10/core/ScalarType.h>

#include "kernels/plan/NetworkShape.h"
#include "kernels/primitives/DeviceTraits.h"

namespace adtrain::kernels {

/// Why a network lacks kernels, as the end of a sentence; no value where it has them.
using Why = std::optional<std::string>;

/// Which kernels of our own, and of cuDNN, do not run a network on a device.
struct MissingKernels {
  Why whole_blocks, sublayers, own_attention, cudnn_attention, decoding_attention, fused_embedding,
      fused_encoder, fused_loss;

  static MissingKernels of(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type);
  /// All of them, for one reason.
  static MissingKernels all(const std::string& why);
};

/// Why kernels that read weights of 16 bits do not run networks with quantised ones.
constexpr const char* kQuantised = "they multiply by weights of 16 bits, and these are quantised";

/// Whether our own attention, where the network has it, streams keys and values.
bool streams_keys(const NetworkShape& network, at::ScalarType type);

}  // namespace adtrain::kernels
