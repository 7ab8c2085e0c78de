#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/Communicator.h"
#include "environments/worker/WorkerPool.h"
#include "evaluation/EvaluationFolder.h"
#include "evaluation/LearningCurve.h"
#include "evaluation/TaskScores.h"
#include "run/RunConfig.h"

namespace adtrain {

/// Which of the groups of spaces that the run's networks are trained for the environments of `workers` have:
/// its place in the order of the run; 0 where there is one. Throws ConfigError, which lists all groups, where
/// it is none, and where it is several and env_group names none of those.
size_t group_in_workers(const RunConfig& config, const WorkerPool& workers);

/// Starts this rank's workers (env_worker); null where none are configured. `say` receives what they notice.
/// Throws ConfigError where their spaces are not those of the run's networks, and what WorkerPool throws.
std::unique_ptr<WorkerPool> start_workers(const RunConfig& config, const PlayNotices::Say& say);

/// What eval_tasks means there: numbers of the worker's TASKS, of which none was trained on; without TASKS
/// the family's tasks. Not of own tasks,
/// which OwnTasksOfRun knows. Throws ConfigError where there are none of these.
std::vector<int64_t> tasks_in_workers(const RunConfig& config, const WorkerPool& workers);

/// The part of summary.json that a worker's environments add.
EvaluationOrigin::Worker origin_in_workers(const WorkerPool& workers, const std::vector<int64_t>& tasks);

/// The mean return of env_random_episodes episodes of uniformly random actions, of each task; nothing where
/// none are asked for, and where a signal came. Collective. Throws WorkerFault.
std::optional<std::vector<double>> random_returns_in_workers(const RunConfig& config,
                                                             const std::vector<int64_t>& tasks,
                                                             WorkerPool& workers, Communicator& communicator);

/// What eval_scores knows of each of these tasks; empty where it is not set. Throws ConfigError where
/// eval_protocol needs it and it is not set, and DataError where the file is no such file, and where it
/// places no task: without an expert's score, or a random one that is not measured either.
std::vector<TaskScore> scores_in_workers(const RunConfig& config, const WorkerPool& workers,
                                         const std::vector<int64_t>& tasks);

/// Returns as a worker's environments gave them, with what is known of their bounds. `scores` as above;
/// `random_returns`: of each measured task, where they were measured, which stand for random scores that are
/// not known.
LearningCurve curve_in_workers(const InContextReturns& measured, std::vector<TaskScore> scores,
                               const std::optional<std::vector<double>>& random_returns);

}  // namespace adtrain
