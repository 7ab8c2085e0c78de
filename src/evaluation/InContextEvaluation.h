#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "collectives/Communicator.h"
#include "environments/TaskSplit.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/Rollouts.h"
#include "evaluation/Trial.h"

namespace adtrain {

/// What an evaluation measures.
struct InContextReturns {
  std::vector<int64_t> tasks;
  at::Tensor returns;  ///< float32 (tasks, repeats, episodes) on the CPU

  int64_t repeats() const { return returns.size(1); }
  int64_t episodes() const { return returns.size(2); }
  /// The mean over repeats: float32 (tasks, episodes), what the Python projects call by this name.
  at::Tensor reward_episode() const { return returns.mean(1); }
};

/// The tasks that eval_tasks names: one side of the split in the split's order, all tasks of the split by
/// number, or the tasks with these numbers, ascending; at most eval_task_limit of them. Throws ConfigError
/// where there are none.
std::vector<int64_t> evaluated_tasks(const EvaluationOptions& options, const TaskSplit& split);

/// In-context evaluation of tasks × repeats, shared among all ranks.
///
/// The trials, in order of (task, repeat), are divided into groups of at most eval_batch, whose sizes differ
/// by at most one; group g is rolled out by rank g mod world size. Groups do not depend on the number of
/// ranks, and a group's forward passes have the same shape wherever it runs, so the result is bitwise equal
/// for any number of ranks on equal hardware.
class InContextEvaluation {
 public:
  /// Receives how many of `total` episodes (each of a group) each rank has done; returns whether to continue.
  using Progress = std::function<bool(int64_t done, int64_t total)>;
  /// Receives what was played before environments failed: the most episodes of the most tasks that are
  /// complete.
  using Keep = std::function<void(const InContextReturns& played)>;

  InContextEvaluation(std::vector<int64_t> tasks, const EvaluationOptions& options);

  /// Collective: ranks synchronise after every episode, so that none waits longer than that for another, and
  /// `progress` is called at the same points on all ranks. Every rank gets the merged result, or nothing
  /// where `progress` returned false on any. Where a worker's environments fail on any rank, all call `keep`;
  /// after that those ranks throw their WorkerFault, and the others PeerLostError.
  std::optional<InContextReturns> measure(const Rollouts& rollouts, Communicator& communicator,
                                          const Progress& progress = {}, const Keep& keep = {}) const;

  /// Tasks × repeats.
  int64_t trials() const;
  /// The trial with this number, in order of (task, repeat).
  Trial trial(int64_t number) const;

 private:
  int64_t groups() const;
  int64_t group_begin(int64_t group) const;
  std::vector<Trial> group_trials(int64_t group) const;
  /// Where the first `played` episodes of each trial are known: a rectangle of complete ones.
  InContextReturns complete_part(const at::Tensor& returns, const std::vector<int64_t>& played) const;

  std::vector<int64_t> tasks_;
  EvaluationOptions options_;
};

}  // namespace adtrain
