#include "telemetry/AppendingFile.h"

#include <cerrno>
#include <system_error>

namespace adtrain {

AppendingFile::AppendingFile(const std::filesystem::path& path) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  file_ = std::fopen(path.c_str(), "ab");
  if (file_ == nullptr) {
    throw std::filesystem::filesystem_error("cannot append to", path, std::error_code(errno, std::generic_category()));
  }
}

AppendingFile::~AppendingFile() { std::fclose(file_); }

void AppendingFile::append(std::string_view bytes) {
  failed_ = std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size() || failed_;
}

void AppendingFile::flush() { failed_ = std::fflush(file_) != 0 || failed_; }

}  // namespace adtrain
