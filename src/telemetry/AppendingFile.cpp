#include "telemetry/AppendingFile.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace adtrain {

AppendingFile::AppendingFile(const std::filesystem::path& path) : path_(path.string()) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw std::filesystem::filesystem_error("cannot append to", path,
                                            std::error_code(errno, std::generic_category()));
  }
  size_ = ::lseek(descriptor_, 0, SEEK_END);
}

AppendingFile::~AppendingFile() {
  ::close(descriptor_);
}

void AppendingFile::append(std::string_view record) {
  failure_.clear();
  std::string_view left = record;
  while (!left.empty()) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written >= 0) {
      left.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      failure_ = fmt::format("cannot write {}: {}", path_, std::generic_category().message(errno));
      if (::ftruncate(descriptor_, size_) != 0) failure_ += "; it ends in half a record now";
      return;
    }
  }
  size_ += static_cast<int64_t>(record.size());
}

}  // namespace adtrain
