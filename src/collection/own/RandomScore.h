#pragma once

#include <cstdint>

#include "environments/worker/WorkerPool.h"

namespace adtrain {

/// The mean return of `episodes` episodes of random actions in users' environments of a task, in up to
/// `places` environments at once. Whole numbers are drawn uniformly, and so are real ones between finite
/// bounds; others are normal. Throws WorkerFault. The pool, made without env_overlap, must have no other
/// batch.
double random_score(WorkerPool& pool, int64_t task, int64_t episodes, int64_t places, uint64_t seed);

}  // namespace adtrain
