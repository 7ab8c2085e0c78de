#include "base/File.h"

#include <cerrno>
#include <regex>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
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

int opened(const fs::path& path, int flags, const char* action) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0) fail(action, path);
  return fd;
}

}  // namespace

FileReader::FileReader(const fs::path& path) : path_(path) {
  const fs::file_status status = fs::status(path);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    errno = fs::is_directory(status) ? EISDIR : EINVAL;
    fail("read", path);
  }
  fd_ = opened(path, O_RDONLY, "read");
  struct stat found {};
  if (::fstat(fd_, &found) != 0) {
    ::close(fd_);
    fail("read", path);
  }
  size_ = static_cast<size_t>(found.st_size);
}

FileReader::~FileReader() {
  ::close(fd_);
}

size_t FileReader::read_some(size_t first, char* bytes, size_t size) const {
  while (true) {
    const ssize_t got = ::pread(fd_, bytes, size, static_cast<off_t>(first));
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) fail("read", path_);
  }
}

void FileReader::read(size_t first, char* bytes, size_t size) const {
  for (size_t got = 0; got < size;) {
    const size_t some = read_some(first + got, bytes + got, size - got);
    if (some == 0) {
      errno = EIO;  // it was cut off since it was opened
      fail("read", path_);
    }
    got += some;
  }
}

FileWriter::FileWriter(const fs::path& path)
    : path_(path), fd_(opened(path, O_WRONLY | O_CREAT | O_TRUNC, "create")) {}

FileWriter::~FileWriter() {
  ::close(fd_);
}

void FileWriter::append(std::string_view bytes) {
  const int fault = Fault::of_this_process().write_error();
  if (fault != 0)
    bytes = bytes.substr(0, bytes.size() / 2);  // simulates a disk that fills up in the middle of a file
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write", path_);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  if (fault != 0) {
    errno = fault;
    fail("write", path_);
  }
}

void FileWriter::flush() {
  if (::fsync(fd_) != 0) fail("flush", path_);
}

std::string read_file(const fs::path& path) {
  const FileReader file(path);
  std::string content;
  content.reserve(file.size());
  char block[1 << 16];
  while (const size_t got = file.read_some(content.size(), block, sizeof block)) content.append(block, got);
  return content;
}

void write_file(const fs::path& path, std::string_view bytes) {
  FileWriter file(path);
  file.append(bytes);
  file.flush();
}

fs::path temporary_beside(const fs::path& path) {
  return path.string() + "." + random_token() + ".tmp";
}

bool is_temporary(const fs::path& path) {
  static const std::regex kEnding(R"(.+\.[0-9a-f]{16}\.tmp)");
  return std::regex_match(path.filename().string(), kEnding);
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  write_file_atomically(path, [bytes](FileWriter& file) { file.append(bytes); });
}

void write_file_atomically(const fs::path& path, const std::function<void(FileWriter&)>& write) {
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
  const fs::path temporary = temporary_beside(path);
  try {
    FileWriter file(temporary);
    write(file);
    file.flush();
    rename_durably(temporary, path);
  } catch (...) {
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
  const int fd = opened(path, O_RDONLY, "open");
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  errno = error;
  if (result != 0) fail("flush", path);
}

}  // namespace adtrain
