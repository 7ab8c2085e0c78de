#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/FileContent.h"
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

/// Hands the bytes of a safetensors file to `sink`, from front to back: u64 length, a JSON header padded to 8
/// bytes, then the data, row-major and little-endian, ordered by the size of an element (descending), then by
/// name, as the format's own writer does. The format: https://huggingface.co/docs/safetensors. Tensors may
/// live on any device and have any layout; one at a time is copied to the CPU. Throws CheckpointError where
/// two tensors share a name or one has a type that the format lacks, before anything is handed over.
void stream_safetensors(std::span<const NamedTensor> tensors,
                        const std::map<std::string, std::string>& metadata,
                        const std::function<void(std::string_view)>& sink);

/// Parses the output of `stream_safetensors` or of another writer, and checks everything that the format
/// requires before any memory is allocated for tensors. Throws CheckpointError that says what is wrong with
/// `path`, and where in it. Tensors are on the CPU and own their memory.
SafetensorsFile parse_safetensors(std::string_view bytes, const std::filesystem::path& path);
/// The same for what was read of a file. Tensors whose data are aligned there share its memory, which lives
/// as long as one of them.
SafetensorsFile parse_safetensors(const FileContent& content, const std::filesystem::path& path);

/// The same for a file. Throws CheckpointError also where it cannot be read.
SafetensorsFile read_safetensors(const std::filesystem::path& path);

/// Replaces `path` atomically. Throws std::filesystem::filesystem_error where it cannot be written.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace adtrain
