#pragma once

#include <string>
#include <vector>

#include "base/Error.h"
#include "run/Collect.h"
#include "run/RunConfig.h"

namespace adtrain {

/// `adtrain collect` of own tasks, in the environments of env_worker; the configuration has been read, with
/// these notices. Returns and throws as collect().
ExitCode collect_own_tasks(const CollectRequest& request, const RunConfig& config,
                           const std::vector<std::string>& notices);

}  // namespace adtrain
