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
  /// None: one for each of gpu_ids or, where they are not given, each visible GPU; one without GPUs.
  std::optional<int64_t> ranks;
  std::optional<std::string> gpu_ids;         ///< the ranks' GPUs, as GpuIds reads them; none: all visible
  double grace_seconds = 30;                  ///< between asking the other ranks to end and killing them
  std::optional<std::filesystem::path> logs;  ///< none: a new folder in runs/launch-logs
  /// The program that each rank runs; none: this one. Another program joins the ranks through adtrain's
  /// library.
  std::optional<std::filesystem::path> program;
  std::vector<std::string> command_line;  ///< of each rank: "config.yaml", "--resume"
};

/// Starts ranks of the program on this host and returns when all have ended. Rank 0 has the launcher's own
/// standard output and error; every other rank has a log. INT, TERM, USR1 and HUP are passed on to all ranks.
/// The first failure ends all ranks, and the last line names it.
///
/// Returns kDone; kRequeue where ranks stopped on request; else the first failure's own code, which may be
/// 128 + n. Throws ConfigError or EnvironmentError where it cannot start.
ExitCode launch_locally(const LocalLaunchRequest& request);

}  // namespace adtrain
