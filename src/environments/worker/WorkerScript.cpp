#include "environments/worker/WorkerScript.h"

#include <system_error>

#include <fmt/format.h>

#include "base/Error.h"

namespace adtrain {

std::filesystem::path worker_script() {
  namespace fs = std::filesystem;
  constexpr const char* kName = "environment_worker.py";
  std::error_code unreadable;
  const fs::path folder = fs::read_symlink("/proc/self/exe", unreadable).parent_path();
  const fs::path beside = folder / kName;
  const fs::path shared = (folder / ".." / "share" / "adtrain" / kName).lexically_normal();
  for (const fs::path& candidate : {beside, shared}) {
    if (fs::is_regular_file(candidate, unreadable)) return candidate;
  }
  throw EnvironmentError(
      fmt::format("the file that environments run under, {}, is neither at {} nor at {}; "
                  "expected it where adtrain was built or installed, or copied beside it",
                  kName, beside.string(), shared.string()));
}

}  // namespace adtrain
