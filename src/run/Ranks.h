#pragma once

#include <filesystem>
#include <functional>

#include "framework/Ranks.h"
#include "run/RunConfig.h"

namespace adtrain {

/// The function of this name in framework/Ranks.h, for a run: its ranks must have the same configuration, and
/// the failure file, where none is named, is `failure.txt` in the run's folder. `on_failure` and
/// `continues_by_resume` are as there.
ExitCode as_one_of_the_ranks(const RunConfig& config, const std::function<ExitCode(const Ranks&)>& body,
                             const std::filesystem::path& failure_file = {},
                             const std::function<void(const Failure&)>& on_failure = {},
                             bool continues_by_resume = false);

}  // namespace adtrain
