#pragma once

#include <cstdint>

#include "evaluation/InContextEvaluation.h"
#include "evaluation/Rollouts.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "telemetry/Console.h"

namespace adtrain {

/// The most environments at once (eval_batch: auto_batch_size): an even share of all of them for each rank,
/// or as many as fit every rank's memory, found by trials. A trial is the evaluation's own rollout, up to the
/// episode that fills the context. Collective. Throws Error (kOutOfMemory) where not even one fits.
int64_t find_evaluation_batch(const RunConfig& config, const InContextEvaluation& evaluation,
                              const Rollouts& rollouts, const Ranks& ranks, Console& console);

}  // namespace adtrain
