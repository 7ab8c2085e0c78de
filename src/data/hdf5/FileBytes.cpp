#include "data/hdf5/FileBytes.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/Error.h"

namespace adtrain {

FileBytes::FileBytes(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat found {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &found) != 0 || !S_ISREG(found.st_mode)) {
    const std::string reason = descriptor_ < 0 ? std::strerror(errno) : "it is no file";
    if (descriptor_ >= 0) ::close(descriptor_);
    throw DataError(
        fmt::format("{}: cannot be opened ({}); expected a file that can be read", path_.string(), reason));
  }
  size_ = static_cast<uint64_t>(found.st_size);
}

FileBytes::~FileBytes() {
  ::close(descriptor_);
}

void FileBytes::read(uint64_t offset, size_t bytes, void* to) const {
  auto* into = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, into, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw DataError(fmt::format("{}: no bytes from {} on ({}); expected {} there; fetch the file again",
                                  path_.string(), offset,
                                  got < 0 ? std::strerror(errno) : "the file ends before", bytes));
    }
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
    into += got;
  }
}

}  // namespace adtrain
