#include "base/File.h"

#include <cerrno>
#include <regex>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "base/Fault.h"
#include "base/RandomToken.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* action, const fs::path& path) {
  throw fs::filesystem_error(std::string("cannot ") + action, path,
                             std::error_code(errno, std::generic_category()));
}

/// A POSIX file descriptor that its destructor closes.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, const char* action) : fd_(::open(path.c_str(), flags, 0644)) {
    if (fd_ < 0) fail(action, path);
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::string read_file(const fs::path& path) {
  const fs::file_status status = fs::status(path);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    errno = fs::is_directory(status) ? EISDIR : EINVAL;
    fail("read", path);
  }
  const Descriptor file(path, O_RDONLY | O_CLOEXEC, "read");
  std::string content;
  char block[1 << 16];
  while (true) {
    const ssize_t got = ::read(file.get(), block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path);
    if (got == 0) return content;
    content.append(block, static_cast<size_t>(got));
  }
}

void write_file(const fs::path& path, std::string_view bytes) {
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, "create");
  const int fault = Fault::of_this_process().write_error();
  if (fault != 0)
    bytes = bytes.substr(0, bytes.size() / 2);  // simulates a disk that fills up in the middle of a file
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write", path);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  if (fault != 0) {
    errno = fault;
    fail("write", path);
  }
  if (::fsync(file.get()) != 0) fail("flush", path);
}

fs::path temporary_beside(const fs::path& path) {
  return path.string() + "." + random_token() + ".tmp";
}

bool is_temporary(const fs::path& path) {
  static const std::regex kEnding(R"(.+\.[0-9a-f]{16}\.tmp)");
  return std::regex_match(path.filename().string(), kEnding);
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
  const fs::path temporary = temporary_beside(path);
  try {
    write_file(temporary, bytes);
    rename_durably(temporary, path);
  } catch (const fs::filesystem_error&) {
    std::error_code ignored;
    fs::remove(temporary, ignored);  // it would only occupy the space that is lacking
    throw;
  }
}

void rename_durably(const fs::path& from, const fs::path& to) {
  fs::rename(from, to);
  flush_to_disk(to.has_parent_path() ? to.parent_path() : fs::path("."));
}

void flush_to_disk(const fs::path& path) {
  const Descriptor file(path, O_RDONLY | O_CLOEXEC, "open");
  if (::fsync(file.get()) != 0) fail("flush", path);
}

}  // namespace adtrain
