#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/Parameters.h"

namespace adtrain {

/// What a safetensors file holds.
struct SafetensorsFile {
  std::vector<NamedTensor> tensors;             ///< in the order of their data in the file
  std::map<std::string, std::string> metadata;  ///< `__metadata__`
};

/// The bytes of a safetensors file: u64 length, a JSON header padded to 8 bytes, then the data, row-major and little-endian,
/// ordered by size of the type (descending), then by name, as Hugging Face's writer orders it.
/// The format: https://huggingface.co/docs/safetensors. Tensors may live on any device and have any layout.
std::string safetensors_bytes(std::span<const NamedTensor> tensors, const std::map<std::string, std::string>& metadata = {});

/// Reads a file and checks all that the format demands. Throws CheckpointError that says what is wrong and where.
/// Tensors are on the CPU and own their memory.
SafetensorsFile read_safetensors(const std::filesystem::path& path);

}  // namespace adtrain
