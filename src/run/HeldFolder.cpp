#include "run/HeldFolder.h"

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace adtrain {

namespace fs = std::filesystem;

bool is_absent(const fs::path& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

HeldFolder::HeldFolder(fs::path name)
    : name_(name.empty() ? fs::path(".") : std::move(name)),
      descriptor_(::open(name_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {}

HeldFolder::~HeldFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool HeldFolder::has_lost_its_name() const {
  return is_absent(name_) || is_at(name_) == false;
}

fs::path HeldFolder::place() const {
  if (descriptor_ < 0) return {};
  std::error_code unknown;
  fs::path now = fs::read_symlink(file(""), unknown);
  // The system writes " (deleted)" behind the last path, and does not know of moves by other hosts.
  return !unknown && is_at(now) == true ? now : fs::path();
}

/// By the system's link to what a descriptor stands for.
fs::path HeldFolder::file(const fs::path& name) const {
  if (descriptor_ < 0) return name_ / name;
  const fs::path folder = fs::path("/proc/self/fd") / std::to_string(descriptor_);
  return name.empty() ? folder : folder / name;
}

std::optional<bool> HeldFolder::is_at(const fs::path& path) const {
  struct stat there {};
  struct stat held {};
  if (descriptor_ < 0 || ::stat(path.c_str(), &there) != 0 || ::fstat(descriptor_, &held) != 0)
    return std::nullopt;
  return there.st_dev == held.st_dev && there.st_ino == held.st_ino;
}

}  // namespace adtrain
