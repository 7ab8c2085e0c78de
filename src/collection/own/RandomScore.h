#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "environments/worker/WorkerPool.h"

namespace adtrain {

/// The mean return of `episodes` episodes of random actions (random_element) in users' environments of a
/// task, in up to `places` environments at once. Nothing where `stop`, called before every step, returned
/// true. Throws WorkerFault. The pool, made without env_overlap, must have no other batch.
std::optional<double> random_score(WorkerPool& pool, int64_t task, int64_t episodes, int64_t places,
                                   uint64_t seed, const std::function<bool()>& stop = {});

}  // namespace adtrain
