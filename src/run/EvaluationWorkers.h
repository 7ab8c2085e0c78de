#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/Communicator.h"
#include "environments/worker/WorkerPool.h"
#include "evaluation/EvaluationFolder.h"
#include "run/RunConfig.h"

namespace adtrain {

/// Starts this rank's workers (env_worker); null where none are configured. `say` receives what they notice.
/// Throws ConfigError where their spaces are not those of the run's networks, and what WorkerPool throws.
std::unique_ptr<WorkerPool> start_workers(const RunConfig& config, const PlayNotices::Say& say);

/// What eval_tasks means there: numbers of the worker's TASKS, of which none was trained on; without TASKS
/// the family's tasks. Own tasks are split as in training. Throws ConfigError where there are none of these.
std::vector<int64_t> tasks_in_workers(const RunConfig& config, const WorkerPool& workers);

/// The part of summary.json that a worker's environments add.
EvaluationOrigin::Worker origin_in_workers(const WorkerPool& workers, const std::vector<int64_t>& tasks);

/// The mean return of env_random_episodes episodes of uniformly random actions in each task; nothing where
/// none are asked for, and where a signal came. Collective. Throws WorkerFault.
std::optional<double> random_return_in_workers(const RunConfig& config, const std::vector<int64_t>& tasks,
                                               WorkerPool& workers, Communicator& communicator);

}  // namespace adtrain
