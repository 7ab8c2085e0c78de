#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// What `adtrain launch` was asked for.
struct LocalLaunchRequest {
  std::optional<int64_t> ranks;               ///< none: one for each visible GPU, else a single one
  double grace_seconds = 30;                  ///< between asking the other ranks to end and killing them
  std::optional<std::filesystem::path> logs;  ///< none: a new folder in runs/launch-logs
  /// Whose ranks they are; none: this program's. Another one joins them by adtrain's library.
  std::optional<std::filesystem::path> program;
  std::vector<std::string> command_line;  ///< of each rank: "config.yaml", "--resume"
};

/// Starts ranks of the program on this host and stays until all have ended. Rank 0 has the launcher's own
/// standard output and error, every other rank a log. INT, TERM, USR1 and HUP are passed on to all. The first
/// failure ends all, and is named last.
///
/// kDone, kRequeue where ranks stopped on request, else the first failure's own code, which may be 128 + n.
/// Throws ConfigError and EnvironmentError where it cannot begin.
ExitCode launch_locally(const LocalLaunchRequest& request);

}  // namespace adtrain
