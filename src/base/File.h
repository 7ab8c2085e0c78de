#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

/// The one place that touches the file system for writing. Every function throws
/// `std::filesystem::filesystem_error` whose text names the path and the operating system's reason; callers
/// turn it into their own error where they know what the user should do.
namespace adtrain {

/// Reads a regular file only: a pipe or a device could block or never end.
std::string read_file(const std::filesystem::path& path);

/// An open file or folder, which its destructor closes.
class OpenFile {
 public:
  /// `flags`: of open(2). `action`: "create", for the error.
  OpenFile(const std::filesystem::path& path, int flags, const char* action);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int descriptor() const { return descriptor_; }
  /// To the disk.
  void flush() const;
  /// Throws the error of this file that `errno` tells.
  [[noreturn]] void fail(const char* action) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
};

/// A regular file that is open for reading. Thread-safe.
class FileReader {
 public:
  explicit FileReader(const std::filesystem::path& path);

  /// Bytes that it had when it was opened.
  size_t size() const { return size_; }
  /// Reads up to `size` bytes from `first` on. Returns how many; none at the file's end.
  size_t read_some(size_t first, char* bytes, size_t size) const;
  /// Reads all of them. Throws also where the file ends before.
  void read(size_t first, char* bytes, size_t size) const;

 private:
  OpenFile file_;
  size_t size_;
};

/// A new file, written from front to back. Not atomic: for files inside a folder that is renamed later.
class FileWriter {
 public:
  explicit FileWriter(const std::filesystem::path& path);

  void append(std::string_view bytes);
  /// To the disk. To be called at the end: without it a file may be lost where the host fails.
  void flush() { file_.flush(); }

 private:
  OpenFile file_;
};

/// Writes `bytes` by a FileWriter and flushes them.
void write_file(const std::filesystem::path& path, std::string_view bytes);

/// `path` with an ending that nobody else uses: 16 random digits and ".tmp". Several processes may write the
/// same file at the same time, and none must find another's in place of its own.
std::filesystem::path temporary_beside(const std::filesystem::path& path);
/// Whether a path is one that temporary_beside gives. A process that is killed leaves its temporary file.
bool is_temporary(const std::filesystem::path& path);

/// Replaces `path` atomically: a reader sees the old content or the new, also after a crash. Writes a
/// temporary file beside it, flushes it, renames it and flushes the folder. Creates missing folders. Where
/// that fails no temporary file is left.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);
/// The same with what `write` appends.
void write_file_atomically(const std::filesystem::path& path, const std::function<void(FileWriter&)>& write);

/// Renames a file or folder atomically and flushes the parent folder, so that the new name survives a crash.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// Flushes a file's or a folder's content to the disk.
void flush_to_disk(const std::filesystem::path& path);

}  // namespace adtrain
