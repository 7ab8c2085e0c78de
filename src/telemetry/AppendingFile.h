#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace adtrain {

/// A log file that only grows, record by record. Losing a record must not stop a run: `failure` reports the
/// error. A record is in the file completely or not at all, so that a temporarily full disk leaves a readable
/// file. For one thread.
class AppendingFile {
 public:
  /// Opens or continues the file; creates missing folders. Throws std::filesystem::filesystem_error where
  /// that fails.
  explicit AppendingFile(const std::filesystem::path& path);
  ~AppendingFile();
  AppendingFile(const AppendingFile&) = delete;
  AppendingFile& operator=(const AppendingFile&) = delete;

  /// Passes the record to the operating system at once, for readers that follow the file.
  void append(std::string_view record);

  /// Why the last `append` failed, with the file's name; empty if it did not.
  const std::string& failure() const { return failure_; }

 private:
  std::string path_;
  int descriptor_;
  int64_t size_;
  std::string failure_;
};

}  // namespace adtrain
