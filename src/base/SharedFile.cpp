#include "base/SharedFile.h"

#include <system_error>

#include <fmt/format.h>

#include "base/Error.h"

namespace adtrain {

std::filesystem::path shared_file(const char* name, const char* purpose) {
  namespace fs = std::filesystem;
  std::error_code unreadable;
  const fs::path folder = fs::read_symlink("/proc/self/exe", unreadable).parent_path();
  const fs::path beside = folder / name;
  const fs::path shared = (folder / ".." / "share" / "adtrain" / name).lexically_normal();
  for (const fs::path& candidate : {beside, shared}) {
    if (fs::is_regular_file(candidate, unreadable)) return candidate;
  }
  throw EnvironmentError(
      fmt::format("the file {}, {}, is neither at {} nor at {}; expected it where adtrain was built or "
                  "installed, or copied beside it",
                  purpose, name, beside.string(), shared.string()));
}

}  // namespace adtrain
