#pragma once

#include <map>
#include <span>
#include <string>

#include "checkpoint/Safetensors.h"

namespace adtrain {

/// A safetensors file in memory.
inline std::string safetensors_bytes(std::span<const NamedTensor> tensors,
                                     const std::map<std::string, std::string>& metadata = {}) {
  std::string bytes;
  stream_safetensors(tensors, metadata, [&](std::string_view piece) { bytes += piece; });
  return bytes;
}

}  // namespace adtrain
