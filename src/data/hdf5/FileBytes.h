#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace adtrain {

/// A file whose bytes are read at any place, by any number of threads at once.
class FileBytes {
 public:
  /// Throws DataError where it cannot be opened or is no regular file.
  explicit FileBytes(std::filesystem::path path);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  /// As it was when it was opened.
  uint64_t size() const { return size_; }
  /// Reads `bytes` bytes from `offset` on, all of which must lie below size(). Throws DataError where the
  /// disk fails or the file has become shorter.
  void read(uint64_t offset, size_t bytes, void* to) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  uint64_t size_ = 0;
};

}  // namespace adtrain
