#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// What `adtrain collect` was asked for.
struct CollectRequest {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  bool overwrite = false;
  bool json = false;
};

/// Collects the learning histories of all tasks into traj_dir; continues a collection that was stopped.
/// kDone, or kRequeue where it was stopped by a signal. Throws the Error family.
ExitCode collect(const CollectRequest& request);

}  // namespace adtrain
