#include "base/SymbolicLink.h"

#include <system_error>

#include "base/File.h"

namespace adtrain {

namespace fs = std::filesystem;

void point_link(const fs::path& link, const fs::path& target) {
  const fs::path temporary = temporary_beside(link);
  try {
    fs::create_directory_symlink(target, temporary);
    rename_durably(temporary, link);
  } catch (const fs::filesystem_error&) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

}  // namespace adtrain
