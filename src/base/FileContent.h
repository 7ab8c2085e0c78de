#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace adtrain {

/// The bytes of a file, read into memory by several threads, and their checksum. Copies share the memory. A
/// value.
class FileContent {
 public:
  /// Regular files only. Throws std::filesystem::filesystem_error, also where the file is cut off meanwhile.
  explicit FileContent(const std::filesystem::path& path);

  std::string_view bytes() const { return {bytes_.get(), size_}; }
  /// CRC-32, as checksum_of() has it.
  uint32_t checksum() const { return checksum_; }
  /// What keeps the bytes.
  const std::shared_ptr<char[]>& memory() const { return bytes_; }

 private:
  std::shared_ptr<char[]> bytes_;
  size_t size_;
  uint32_t checksum_;
};

/// What FileContent's checksum would be, without memory for the whole file. The same errors.
uint32_t checksum_of_file(const std::filesystem::path& path);

}  // namespace adtrain
