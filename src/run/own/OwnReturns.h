#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "environments/worker/WorkerPool.h"
#include "run/ReturnsWhileTraining.h"
#include "run/own/OwnTasksOfRun.h"

namespace adtrain {

/// In-context returns while training in users' environments. Each rank starts workers of its own for each
/// measurement and ends them after it, as `adtrain evaluate` does: in between they hold no memory, and one
/// measurement leaves nothing to the next. Environments that fail cost a run the figures of one step, which
/// is said, and not more.
class OwnReturns final : public ReturnsWhileTraining {
 public:
  /// Starts workers once, to see that they are what the run is trained for. Borrows the first three. `say`
  /// receives what the user should know. Throws what start_workers and player_in_workers throw, and
  /// ConfigError where keep_best has no held-out tasks to compare checkpoints by.
  OwnReturns(const RunConfig& config, AlgorithmDistillation& trained, Communicator& communicator,
             OwnTasksOfRun tasks, PlayNotices::Say say);

 private:
  std::optional<ReturnFigures> measured_by(AlgorithmDistillation& model) override;
  std::optional<ReturnFigures> measured_in(WorkerPool& workers, AlgorithmDistillation& model,
                                           const std::function<void()>& failed) const;
  std::unique_ptr<WorkerPool> started();
  /// Whether the environments of any rank failed, which rank 0 then says. `fault`: what this rank's did, or
  /// "". Collective.
  bool failed_on_any_rank(const std::string& fault) const;

  OwnTasksOfRun tasks_;
  PlayNotices::Say say_;
  std::set<std::string> said_;  ///< notices of workers, of which each measurement's begin anew
};

}  // namespace adtrain
