#pragma once

#include <cstddef>

namespace adtrain {

/// Anonymous memory that another process can map, too: it is sent the file. Zeros at first. Goes when the
/// last process has unmapped it; never has a name in a file system.
class SharedSegment {
 public:
  /// Throws Error (kOutOfMemory) where the system has no such memory left.
  explicit SharedSegment(size_t bytes);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  int file() const { return file_; }

 private:
  size_t bytes_;
  int file_;
  std::byte* data_ = nullptr;
};

}  // namespace adtrain
