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

[[noreturn]] void fail_at(const char* action, const fs::path& path) {
  throw fs::filesystem_error(std::string("cannot ") + action, path,
                             std::error_code(errno, std::generic_category()));
}

/// The path of a regular file; throws for another, which could block or never end.
const fs::path& regular(const fs::path& path) {
  const fs::file_status status = fs::status(path);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    errno = fs::is_directory(status) ? EISDIR : EINVAL;
    fail_at("read", path);
  }
  return path;
}

size_t size_of(const OpenFile& file) {
  struct stat found {};
  if (::fstat(file.descriptor(), &found) != 0) file.fail("read");
  return static_cast<size_t>(found.st_size);
}

}  // namespace

OpenFile::OpenFile(const fs::path& path, int flags, const char* action)
    : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) fail(action);
}

OpenFile::~OpenFile() {
  ::close(descriptor_);
}

void OpenFile::flush() const {
  if (::fsync(descriptor_) != 0) fail("flush");
}

void OpenFile::fail(const char* action) const {
  fail_at(action, path_);
}

FileReader::FileReader(const fs::path& path)
    : file_(regular(path), O_RDONLY, "read"), size_(size_of(file_)) {}

size_t FileReader::read_some(size_t first, char* bytes, size_t size) const {
  while (true) {
    const ssize_t got = ::pread(file_.descriptor(), bytes, size, static_cast<off_t>(first));
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) file_.fail("read");
  }
}

void FileReader::read(size_t first, char* bytes, size_t size) const {
  for (size_t got = 0; got < size;) {
    const size_t some = read_some(first + got, bytes + got, size - got);
    if (some == 0) {
      errno = EIO;  // it was cut off since it was opened
      file_.fail("read");
    }
    got += some;
  }
}

FileWriter::FileWriter(const fs::path& path) : file_(path, O_WRONLY | O_CREAT | O_TRUNC, "create") {}

void FileWriter::append(std::string_view bytes) {
  const int fault = Fault::of_this_process().write_error();
  if (fault != 0)
    bytes = bytes.substr(0, bytes.size() / 2);  // simulates a disk that fills up in the middle of a file
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.descriptor(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      file_.fail("write");
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  if (fault != 0) {
    errno = fault;
    file_.fail("write");
  }
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
  OpenFile(path, O_RDONLY, "open").flush();
}

}  // namespace adtrain
