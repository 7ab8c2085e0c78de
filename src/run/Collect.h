#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// The command line of `adtrain collect`.
struct CollectRequest {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  bool overwrite = false;
  bool json = false;
};

/// Collects the learning histories of all tasks, or of those that `tasks` names, into traj_dir; continues a
/// collection that was stopped. Returns kDone, or kRequeue where a signal stopped it. Throws the Error
/// family.
ExitCode collect(const CollectRequest& request);

}  // namespace adtrain
