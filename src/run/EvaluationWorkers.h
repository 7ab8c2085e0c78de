#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "collectives/Communicator.h"
#include "environments/worker/WorkerPool.h"
#include "evaluation/EvaluationFolder.h"
#include "evaluation/LearningCurve.h"
#include "evaluation/Rollouts.h"
#include "evaluation/TaskScores.h"
#include "model/AlgorithmDistillation.h"
#include "run/RunConfig.h"
#include "run/own/OwnTasksOfRun.h"
#include "telemetry/Console.h"

namespace adtrain {

/// Which of the groups of spaces that the run's networks are trained for the environments of `workers` have:
/// its place in the order of the run; 0 where there is one. Throws ConfigError, which lists all groups, where
/// it is none, and where it is several and env_group names none of those.
size_t group_in_workers(const RunConfig& config, const WorkerPool& workers);

/// Says what workers notice: on the console of the rank that has one, else on standard error, with the rank's
/// number. Borrows the console; null for none.
PlayNotices::Say notices_of_rank(int64_t rank, Console* console);

/// Starts this rank's workers (env_worker); null where none are configured. `say` receives what they notice.
/// Throws ConfigError where their spaces are not those of the run's networks, and what WorkerPool throws.
std::unique_ptr<WorkerPool> start_workers(const RunConfig& config, const PlayNotices::Say& say);

/// What eval_tasks means there: numbers of the worker's TASKS, of which none was trained on; without TASKS
/// the family's tasks. Not of own tasks,
/// which OwnTasksOfRun knows. Throws ConfigError where there are none of these.
std::vector<int64_t> tasks_in_workers(const RunConfig& config, const WorkerPool& workers);

/// The type in which a network is evaluated on this device: loaded_type(), but, where it is open and weights
/// are as they are, that of training where keys and values are kept (eval_context: rolling), which are as
/// many as memory holds.
at::ScalarType evaluated_type(const RunConfig& config, at::Device device);

/// What the network is to the workers' environments. `own`: the tasks of the run, where they are of any
/// space; null for a family's. `predict` and `kept` call the model. Borrows `model` and `workers`.
Rollouts::Player player_in_workers(AlgorithmDistillation& model, const Predictor& predict,
                                   const RollingPredictors& kept, const RunConfig& config,
                                   const WorkerPool& workers, const OwnTasksOfRun* own);

/// The part of summary.json that a worker's environments add.
EvaluationOrigin::Worker origin_in_workers(const WorkerPool& workers, const std::vector<int64_t>& tasks);

/// The mean return of env_random_episodes episodes of uniformly random actions, of each task; nothing where
/// none are asked for, and where a signal came. Collective. Throws WorkerFault.
std::optional<std::vector<double>> random_returns_in_workers(const RunConfig& config,
                                                             const std::vector<int64_t>& tasks,
                                                             WorkerPool& workers, Communicator& communicator);

/// What eval_scores knows of each of these tasks, else, of own tasks, what the histories of the run say;
/// empty where that places none: without an expert's score, or a random one that is not measured either.
/// Throws ConfigError where eval_protocol needs scores and there are none, and DataError where the file is no
/// such file, and where it places no task. `own` may be null.
std::vector<TaskScore> scores_in_workers(const RunConfig& config, const WorkerPool& workers,
                                         const std::vector<int64_t>& tasks, const OwnTasksOfRun* own);

/// Returns as a worker's environments gave them, with what is known of their bounds. `scores` as above;
/// `random_returns`: of each measured task, where they were measured, which stand for random scores that are
/// not known. Warns on standard error of tasks that are not placed as their expert earns no more than random
/// actions.
LearningCurve curve_in_workers(const InContextReturns& measured, std::vector<TaskScore> scores,
                               const std::optional<std::vector<double>>& random_returns);

}  // namespace adtrain
