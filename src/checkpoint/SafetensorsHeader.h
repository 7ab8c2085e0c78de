#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace adtrain {

/// The header of a safetensors file, checked against the file's size: its tensors and the positions of their
/// data. Independent of libtorch.
struct SafetensorsHeader {
  struct Entry {
    std::string name;
    std::string dtype;  ///< "F32", one of kDtypes
    std::vector<int64_t> shape;
    uint64_t begin = 0, end = 0;  ///< of its data, in bytes from the header's end
  };
  struct Dtype {
    const char* name;
    int64_t bytes;  ///< of an element
  };
  static constexpr Dtype kDtypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                                      {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
  static constexpr const char* kMetadata = "__metadata__";
  static constexpr size_t kLengthBytes = 8;  ///< in front of the header: its length, little-endian

  std::vector<Entry> entries;  ///< in the order of their data, which they cover without gaps or overlaps
  std::map<std::string, std::string> metadata;
  std::string_view data;  ///< what follows the header; borrowed from the bytes that were parsed

  /// Allocates memory in proportion to the header's bytes. Throws CheckpointError that says what is wrong
  /// with `path`, and where in it.
  static SafetensorsHeader parse(std::string_view bytes, const std::filesystem::path& path);
};

}  // namespace adtrain
