#pragma once

#include <filesystem>
#include <functional>

#include "framework/Ranks.h"
#include "run/RunConfig.h"

namespace adtrain {

/// The function of this name in framework/Ranks.h, for a command of this program: its ranks must have the
/// same configuration. `failure_file` (empty: none), `on_failure` and `continues_by_resume` are as there.
/// Once `body` has returned, its exit code stands: a signal that asks the process to stop does not end it,
/// unless it insists (see StopRequest).
ExitCode as_one_of_the_ranks(const RunConfig& config, const std::function<ExitCode(const Ranks&)>& body,
                             const std::filesystem::path& failure_file = {},
                             const std::function<void(const Failure&)>& on_failure = {},
                             bool continues_by_resume = false);

}  // namespace adtrain
