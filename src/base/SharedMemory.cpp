#include "base/SharedMemory.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

void* map(int file, size_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

/// Gives a file its pages, as one that is missing later would end whoever touches it by SIGBUS. Returns an
/// error's number, or 0.
int reserve(int file, size_t bytes) {
  rlimit longest{};
  // Beyond this limit the system sends a signal, which ends the process.
  if (getrlimit(RLIMIT_FSIZE, &longest) == 0 && bytes > longest.rlim_cur) return EFBIG;
  return posix_fallocate(file, 0, static_cast<off_t>(bytes));
}

/// What a link of /proc points to; "" where there is none.
std::string target_of(const std::string& link) {
  std::array<char, 256> target{};
  const ssize_t length = readlink(link.c_str(), target.data(), target.size());
  return {target.data(), static_cast<size_t>(std::max<ssize_t>(0, length))};
}

}  // namespace

SharedMemory::SharedMemory(size_t bytes, const Purpose& purpose)
    : bytes_(bytes), file_(memfd_create(purpose.name, MFD_CLOEXEC)) {
  int reason = file_ < 0 ? errno : 0;
  if (reason == 0) reason = reserve(file_, bytes);
  void* mapped = MAP_FAILED;
  if (reason == 0) {
    mapped = map(file_, bytes);
    if (mapped == MAP_FAILED) reason = errno;
  }
  if (reason != 0) {
    if (file_ >= 0) close(file_);
    throw Error(
        ExitCode::kOutOfMemory,
        fmt::format("the system refused {} of memory that is shared with {} ({}); expected room for it: {}",
                    human_bytes(static_cast<double>(bytes)), purpose.sharers, std::strerror(reason),
                    purpose.advice));
  }
  data_ = static_cast<std::byte*>(mapped);
}

SharedMemory::SharedMemory(const Address& address, const Purpose& purpose) : bytes_(address.bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.file);
  const auto fail = [&](const std::string& what) {
    if (file_ >= 0) close(file_);
    throw EnvironmentError(
        fmt::format("{}: {}; expected the memory that a process of this machine shares with {}", path, what,
                    purpose.sharers));
  };
  // In another container that number may be another process's: what is no such memory is not even opened.
  const std::string target = target_of(path);
  if (!target.starts_with(fmt::format("/memfd:{}", purpose.name)))
    fail(target.empty() ? "not found" : fmt::format("found {}", target));
  file_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file_ < 0) fail(std::strerror(errno));
  struct stat found {};
  if (fstat(file_, &found) != 0 || found.st_dev != address.device || found.st_ino != address.inode ||
      static_cast<size_t>(found.st_size) != address.bytes)
    fail("found other memory");
  void* const mapped = map(file_, bytes_);
  if (mapped == MAP_FAILED) fail(std::strerror(errno));
  data_ = static_cast<std::byte*>(mapped);
}

SharedMemory::~SharedMemory() {
  munmap(data_, bytes_);
  close(file_);
}

SharedMemory::Address SharedMemory::address() const {
  struct stat found {};
  fstat(file_, &found);
  return {getpid(), file_, found.st_dev, found.st_ino, bytes_};
}

void SharedMemory::make_read_only() {
  mprotect(data_, bytes_, PROT_READ);
}

std::string SharedMemory::Address::text() const {
  return fmt::format("{}/{}/{}/{}/{}", process, file, device, inode, bytes);
}

std::optional<SharedMemory::Address> SharedMemory::Address::parse(const std::string& text) {
  Address address{};
  std::istringstream stream(text);
  char slash = 0;
  stream >> address.process >> slash >> address.file >> slash >> address.device >> slash >> address.inode >>
      slash >> address.bytes;
  if (!stream || stream.peek() != std::istringstream::traits_type::eof() || address.bytes == 0)
    return std::nullopt;
  return address;
}

}  // namespace adtrain
