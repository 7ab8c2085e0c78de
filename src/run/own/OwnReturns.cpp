#include "run/own/OwnReturns.h"

#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/Error.h"
#include "collectives/Agreement.h"
#include "environments/worker/WorkerFault.h"
#include "run/EvaluationWorkers.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

/// While training, memory is that of the captured step (StepGraph::lend_memory_to). A graph captured there
/// would have no memory of its own, and others would write into what its replays use.
constexpr bool kCaptures = false;

Rollouts::Player player_of(AlgorithmDistillation& model, const RunConfig& config, const WorkerPool& workers,
                           const OwnTasksOfRun& tasks) {
  const auto kept = rolling_predictors_of(model, config.evaluation.eval_context, kCaptures);
  return player_in_workers(model, predictor_of(model), kept, config, workers, &tasks);
}

}  // namespace

OwnReturns::OwnReturns(const RunConfig& config, AlgorithmDistillation& trained, Communicator& communicator,
                       OwnTasksOfRun tasks, PlayNotices::Say say)
    : ReturnsWhileTraining(config, trained, communicator), tasks_(std::move(tasks)), say_(std::move(say)) {
  const std::unique_ptr<WorkerPool> workers = started();
  expect_held_out(tasks_.split(config, *workers));
  player_of(trained, config, *workers, tasks_);
}

std::unique_ptr<WorkerPool> OwnReturns::started() {
  return start_workers(config_, [this](const std::string& sentence) {
    if (said_.insert(sentence).second) say_(sentence);
  });
}

std::optional<ReturnFigures> OwnReturns::measured_by(AlgorithmDistillation& model) {
  std::unique_ptr<WorkerPool> workers;
  std::string fault;
  try {
    workers = started();
  } catch (const Error& error) {
    fault = error.what();
  }
  if (failed_on_any_rank(fault)) return std::nullopt;
  Activity::of_this_process().begin("measuring in-context returns");
  bool failed = false;
  try {
    return measured_in(*workers, model, [&failed] { failed = true; });
  } catch (const WorkerFault& error) {
    fault = error.what();
  } catch (const PeerLostError&) {
    if (!failed) throw;  // that peer is gone, and not its environments alone
  }
  failed_on_any_rank(fault);
  return std::nullopt;
}

std::optional<ReturnFigures> OwnReturns::measured_in(WorkerPool& workers, AlgorithmDistillation& model,
                                                     const std::function<void()>& failed) const {
  const Rollouts::Player player = player_of(model, config_, workers, tasks_);
  EvaluationOrigin origin = EvaluationOrigin::of(config_.environment, std::nullopt, /*checkpoint_step=*/0);
  origin.worker = origin_in_workers(workers, /*tasks=*/{});
  origin.type = model.parameters().compute_type();
  return figures_of(
      {tasks_.split(config_, workers),
       [&](const EvaluationOptions& options) { return Rollouts::in_workers(player, workers, options); },
       origin},
      failed);
}

bool OwnReturns::failed_on_any_rank(const std::string& fault) const {
  const std::vector<std::string> faults = gather_texts(communicator_, fault);
  bool any = false;
  for (size_t rank = 0; rank < faults.size(); ++rank) {
    if (faults[rank].empty()) continue;
    any = true;
    if (!communicator_.is_root()) continue;
    say_(fmt::format(
        "this step has no in-context return, and training continues: the environments of rank {} failed: {}",
        rank, faults[rank]));
  }
  return any;
}

}  // namespace adtrain
