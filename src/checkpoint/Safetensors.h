#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/Parameters.h"

namespace adtrain {

/// What a safetensors file holds.
struct SafetensorsFile {
  std::vector<NamedTensor> tensors;             ///< in the order of their data in the file
  std::map<std::string, std::string> metadata;  ///< `__metadata__`

  /// The step of training that the metadata have, as this program writes them; nothing where they have none,
  /// or what is no number of steps.
  std::optional<int64_t> step() const;
};

/// The bytes of a safetensors file: u64 length, a JSON header padded to 8 bytes, then the data, row-major and
/// little-endian, ordered by the size of an element (descending), then by name, as the format's own writer
/// does. The format: https://huggingface.co/docs/safetensors. Tensors may live on any device and have any
/// layout. Throws CheckpointError where two tensors share a name or one has a type that the format lacks.
std::string safetensors_bytes(std::span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata = {});

/// Parses the output of `safetensors_bytes` or of another writer, and checks everything that the format
/// requires before any memory is allocated for tensors. Throws CheckpointError that says what is wrong with
/// `path`, and where in it. Tensors are on the CPU and own their memory.
SafetensorsFile parse_safetensors(std::string_view bytes, const std::filesystem::path& path);

/// The same for a file. Throws CheckpointError also where it cannot be read.
SafetensorsFile read_safetensors(const std::filesystem::path& path);

/// Replaces `path` atomically. Throws std::filesystem::filesystem_error where it cannot be written.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace adtrain
