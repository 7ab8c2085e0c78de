#pragma once

#include <memory>

#include "evaluation/scoring/ScoredWindows.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "telemetry/Console.h"

namespace adtrain {

/// The windows of own tasks: see scored_windows. `run` is what the model was trained in. Their numbers are
/// scaled as training has scaled them, those of a task that it did not see as in evaluations (TaskScaling).
/// Tasks are known to it by name and group. Those of other spaces than the model's are left out, which it
/// says, unless there are no others.
std::unique_ptr<ScoredWindows> scored_own_tasks(const RunConfig& config, const RunFolder& run,
                                                const Ranks& ranks, Console& console);

}  // namespace adtrain
