#include "base/WriteRemedy.h"

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "base/Text.h"

namespace adtrain {

std::string write_remedy(const std::filesystem::filesystem_error& error,
                         const std::filesystem::path& folder) {
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(folder, unknown);
  switch (error.code().value()) {
    case ENOSPC:
    case EDQUOT:
      return fmt::format(
          "make room in {}{}", folder.string(),
          unknown ? ""
                  : fmt::format(", where {} are free", human_bytes(static_cast<double>(space.available))));
    case EFBIG:
      return fmt::format("let files in {} grow as large as that: `ulimit -f` shows the limit",
                         folder.string());
    case EROFS:
      return fmt::format("make {} writable: its file system is mounted read-only", folder.string());
    case EACCES:
    case EPERM:
      return fmt::format(
          "let this user write to {}: look at its permissions (ls -ld) and attributes (lsattr)",
          folder.string());
    case ENOENT:
    case ENOTDIR:
    case EEXIST:
    case ELOOP:
      return fmt::format(
          "make every part of the path {} a folder (not a file, nor a link that leads nowhere)",
          folder.string());
    case ENAMETOOLONG:
      return fmt::format("shorten the path {}, in which a name or the whole is too long", folder.string());
    default:
      return fmt::format("see what the system's log says of the file system of {}", folder.string());
  }
}

}  // namespace adtrain
