#pragma once

#include <cstdio>
#include <filesystem>
#include <string_view>

namespace adtrain {

/// A log file that only grows. Losing it must not stop a run: a failed write is remembered and told by `failed`.
class AppendingFile {
 public:
  /// Creates missing folders. Throws std::filesystem::filesystem_error where the file cannot be opened.
  explicit AppendingFile(const std::filesystem::path& path);
  ~AppendingFile();
  AppendingFile(const AppendingFile&) = delete;
  AppendingFile& operator=(const AppendingFile&) = delete;

  void append(std::string_view bytes);
  void flush();
  bool failed() const { return failed_; }

 private:
  std::FILE* file_;
  bool failed_ = false;
};

}  // namespace adtrain
