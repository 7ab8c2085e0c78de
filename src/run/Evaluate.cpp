#include "run/Evaluate.h"

#include <charconv>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/File.h"
#include "base/StandardStreams.h"
#include "base/SymbolicLink.h"
#include "base/Text.h"
#include "checkpoint/CheckpointStore.h"
#include "checkpoint/Manifest.h"
#include "collectives/StopRequest.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "environments/worker/WorkerPool.h"
#include "evaluation/EvaluationFolder.h"
#include "evaluation/InContextEvaluation.h"
#include "evaluation/LearningCurve.h"
#include "launch/StopCode.h"
#include "memory/AutoBatchSize.h"
#include "model/AlgorithmDistillation.h"
#include "run/ConfigChanges.h"
#include "run/EvaluationBatch.h"
#include "run/EvaluationWorkers.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "run/own/OwnTasksOfRun.h"
#include "telemetry/Console.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// What the command line's folder refers to.
struct Target {
  RunFolder run;
  std::optional<fs::path> checkpoint;  ///< one of the run's checkpoints; none: the newest
};

Target resolve(fs::path folder) {
  folder = folder.lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();
  Target target;
  if (fs::exists(folder / Manifest::kFileName)) {
    target.run.root = fs::path(folder / ".." / "..").lexically_normal();
    target.checkpoint = folder;
  } else {
    target.run.root = folder;
  }
  if (!fs::exists(target.run.config())) {
    throw CheckpointError(fmt::format(
        "{} is neither a run nor one of its checkpoints: there is no {}; expected a folder such as "
        "runs/quickstart or runs/quickstart/checkpoints/step-1000",
        folder.string(), target.run.config().string()));
  }
  return target;
}

/// What is evaluated, and the folder of its results.
struct Plan {
  Target target;
  std::optional<TaskFamily> family;  ///< nothing for own tasks
  std::optional<OwnTasksOfRun> own;  ///< once workers play them
  std::vector<int64_t> tasks;
  EvaluationOrigin origin;
  EvaluationOptions options;
  EvaluationOptions usual;  ///< as the run's own configuration has them

  static Plan of(const Target& target, const RunConfig& config);
  /// Makes this the plan of an evaluation in a worker's environments, which say what tasks there are.
  void play_in(const WorkerPool& workers, const RunConfig& config);
  /// The folder for the results, or for the failure file. Another evaluation may have taken a folder since
  /// the last call.
  fs::path folder() const {
    return evaluation_folder(target.run.evaluation(), evaluation_identity(tasks, origin, options), options,
                             usual);
  }
};

/// The step that a checkpoint's folder is named for; 0 where it has no such name.
int64_t named_step(const fs::path& checkpoint) {
  std::error_code absent;
  const std::string name = fs::canonical(checkpoint, absent).filename().string();
  const std::string prefix = "step-";
  int64_t step = 0;
  if (name.starts_with(prefix)) std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  return step;
}

Plan Plan::of(const Target& target, const RunConfig& config) {
  const EnvironmentOptions& environment = config.environment;
  std::optional<TaskFamily> family;
  if (!environment.has_own_tasks()) family = TaskFamily::of(environment);
  if (!family && !config.worker.env_worker) {
    throw ConfigError(
        fmt::format("env: '{}' is no task family of ours, and env_worker is not set; expected where its "
                    "environments come from: "
                    "--set env_worker=module:function (docs/own-environments.md)",
                    environment.env));
  }
  Plan plan{target,
            family,
            /*own=*/std::nullopt,
            /*tasks=*/{},
            EvaluationOrigin::of(environment, family,
                                 named_step(target.checkpoint.value_or(target.run.checkpoints() / "latest"))),
            config.evaluation,
            read_leniently(read_file(target.run.config())).evaluation};
  if (config.worker.env_worker) {
    plan.origin.worker = {*config.worker.env_worker, config.worker.max_episode_steps, /*task_names=*/{}};
  } else {
    const TaskSplit split = TaskSplit::of(environment, family->task_count(), config.tasks);
    plan.tasks = evaluated_tasks(config.evaluation, split);
  }
  return plan;
}

void Plan::play_in(const WorkerPool& workers, const RunConfig& config) {
  if (config.environment.has_own_tasks()) own.emplace(target.run);
  tasks = own ? own->evaluated(config, workers) : tasks_in_workers(config, workers);
  origin.worker = origin_in_workers(workers, tasks);
}

fs::path requeue_marker(const fs::path& folder) {
  return folder / "requeue";
}
fs::path failure_file(const fs::path& folder) {
  return folder / "failure.txt";
}

/// Writes the results and makes them the newest. Returns their folder.
fs::path write_results(const Plan& plan, const InContextReturns& measured, const LearningCurve& curve,
                       Console& console) {
  const fs::path folder = plan.folder();
  write_evaluation(folder, measured, curve, plan.origin, plan.options);
  fs::remove(requeue_marker(folder));
  fs::remove(failure_file(folder));
  try {
    point_link(folder.parent_path() / kLatestEvaluation, folder.filename());
  } catch (const fs::filesystem_error& error) {
    console.warn(fmt::format("the results are written, but the link `{}` was not pointed to them: {}",
                             kLatestEvaluation, error.what()));
  }
  return folder;
}

/// Writes what was played before environments failed, beside where the results would be.
void write_incomplete_results(const Plan& plan, const WorkerPool& workers, const InContextReturns& played,
                              const PlayNotices::Say& say) {
  if (played.tasks.empty()) return;
  EvaluationOrigin origin = plan.origin;
  origin.worker = origin_in_workers(workers, played.tasks);
  fs::path folder = plan.folder();
  folder += kIncompleteEvaluation;
  try {
    write_evaluation(folder, played, LearningCurve::without_bounds(played), origin, plan.options);
    say(fmt::format("what was played before is kept: {} of {} episodes of {} of {} tasks, in {}",
                    played.episodes(), plan.options.eval_episodes, played.tasks.size(), plan.tasks.size(),
                    folder.string()));
  } catch (const fs::filesystem_error& error) {
    say(fmt::format("what was played before is lost: {}", error.what()));
  }
}

/// "in-context return: episode 1 0.88, last ten 3.26 (random 0.33, oracle 17.25)".
std::string text_of(const LearningCurve& curve) {
  std::vector<std::string> bounds;
  if (curve.random_floor) bounds.push_back(fmt::format("random {:.2f}", *curve.random_floor));
  if (curve.oracle) bounds.push_back(fmt::format("oracle {:.2f}", *curve.oracle));
  std::string text =
      fmt::format("in-context return: episode 1 {:.2f}, last ten {:.2f}{}", curve.mean.front(),
                  curve.last10_mean, bounds.empty() ? "" : fmt::format(" ({})", join(bounds, ", ")));
  if (curve.scores) {
    text += fmt::format(
        "; normalised score of {} tasks: episode 1 {:.2f}, last ten {:.2f}, interquartile mean {:.2f}",
        curve.scores->all.tasks, curve.scores->all.mean.front(), curve.scores->all.last10_mean,
        curve.scores->all.last10_iqm);
  }
  return text;
}

/// Reads the weights on rank 0 and gives them to all. Returns the checkpoint's step. Collective.
int64_t load_weights(const Target& target, const TrainingOptions& training, Console& console,
                     Communicator& communicator, AlgorithmDistillation& model) {
  const at::NoGradGuard no_grad;
  at::Tensor step = at::zeros({1}, at::kLong);
  if (communicator.is_root()) {
    Snapshot snapshot;
    if (target.checkpoint) {
      snapshot = CheckpointStore::load(*target.checkpoint);
    } else {
      CheckpointStore::Found found =
          CheckpointStore(target.run.checkpoints(), training.keep_checkpoints).newest();
      for (const std::string& reason : found.passed_over) console.warn("passed over a checkpoint: " + reason);
      snapshot = std::move(found.snapshot);
    }
    model.parameters().load(snapshot.model);
    step.fill_(snapshot.step);
  }
  at::Tensor weights = model.parameters().flat();
  communicator.broadcast(weights, 0);
  model.parameters().refresh();
  communicator.broadcast(step, 0);
  return step.item<int64_t>();
}

ExitCode evaluate_as_rank(const EvaluateRequest& request, Plan plan, const RunConfig& config,
                          const Ranks& ranks) {
  Communicator& communicator = *ranks.communicator;
  Console console = Console::for_process(communicator.is_root() && !request.json);
  const StopRequest stop;
  const PlayNotices::Say say =
      notices_of_rank(ranks.context.rank, communicator.is_root() && !request.json ? &console : nullptr);

  const ModelShape shape = config.model_shape();
  const auto model =
      AlgorithmDistillation::create(config.model, shape, static_cast<uint64_t>(config.training.seed));
  plan.origin.type = evaluated_type(config, ranks.device.device);
  model->parameters().to(ranks.device.device, plan.origin.type);
  plan.origin.checkpoint_step = load_weights(plan.target, config.training, console, communicator, *model);
  const std::unique_ptr<WorkerPool> workers = start_workers(config, say);
  std::vector<TaskScore> scores;
  if (workers) {
    plan.play_in(*workers, config);
    scores = scores_in_workers(config, *workers, plan.tasks, plan.own ? &*plan.own : nullptr);
  }
  const Rollouts rollouts =
      workers
          ? Rollouts::in_workers(player_in_workers(*model, config, *workers, plan.own ? &*plan.own : nullptr,
                                                   config.training.cuda_graph != CudaGraphUse::kOff),
                                 *workers, config.evaluation)
          : Rollouts::of(*model, *plan.family, config.evaluation);
  if (plan.options.eval_batch == kAutoBatchSize) {
    plan.options.eval_batch = find_evaluation_batch(config, InContextEvaluation(plan.tasks, plan.options),
                                                    rollouts, ranks, console);
  }
  const InContextEvaluation evaluation(plan.tasks, plan.options);
  console.banner(
      "In-context evaluation, weights frozen",
      {{"checkpoint",
        fmt::format("step {} of {}", plan.origin.checkpoint_step, plan.target.run.root.string())},
       {"tasks", fmt::format("{} of {}: {}", plan.tasks.size(),
                             config.worker.env_worker.value_or(config.environment.family_name()),
                             abridged(config.evaluation.eval_tasks))},
       {"episodes",
        fmt::format("{} × {} repeats", config.evaluation.eval_episodes, config.evaluation.eval_repeats)},
       {"processes", fmt::format("{}, {}", ranks.context.world_size, launcher_name(ranks.context.launcher))},
       {"device", fmt::format("{}; {}", ranks.device.name, rollouts.place)},
       {"results", plan.folder().string()}});
  if (!ranks.device.notice.empty()) console.notice(ranks.device.notice);
  if (workers && shape.spaces.size() > 1) {
    console.info(fmt::format("the environments are those of group {}, one of {}",
                             shape.spaces[group_in_workers(config, *workers)].group, shape.spaces.size()));
  }

  const auto random_returns =
      workers ? random_returns_in_workers(config, plan.tasks, *workers, communicator) : std::nullopt;
  Activity::of_this_process().begin("evaluating in context");
  std::optional<InContextReturns> measured;
  {
    std::optional<Progress> progress;
    measured = evaluation.measure(
        rollouts, communicator,
        [&](int64_t done, int64_t total) {
          if (!progress) progress.emplace(console, "evaluating", total, "episodes");
          progress->update(done, "");
          return StopRequest::signal_number() == 0;
        },
        [&](const InContextReturns& played) {
          if (communicator.is_root()) write_incomplete_results(plan, *workers, played, say);
        });
  }
  if (!measured) {
    console.info("stopped; nothing was written: the same command starts the evaluation anew");
    if (communicator.is_root()) write_file_atomically(requeue_marker(plan.folder()), "");
    return stop_code(ranks.context.launcher);
  }
  if (!communicator.is_root()) return ExitCode::kDone;

  const LearningCurve curve = workers ? curve_in_workers(*measured, scores, random_returns)
                                      : LearningCurve::of(*measured, *plan.family);
  const fs::path folder = write_results(plan, *measured, curve, console);
  if (request.json) {
    print_answer(summary_json(*measured, curve, plan.origin, plan.options));
  } else {
    console.info(text_of(curve));
    console.info(fmt::format("learning curve {}/learning_curve.png, figures {}/summary.json", folder.string(),
                             folder.string()));
  }
  return ExitCode::kDone;
}

}  // namespace

ExitCode evaluate(const EvaluateRequest& request) {
  const Target target = resolve(request.target);
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(target.run.config(), request.overrides, notices);
  const Plan plan = Plan::of(target, config);
  return as_one_of_the_ranks(
      config, [&](const Ranks& ranks) { return evaluate_as_rank(request, plan, config, ranks); },
      failure_file(plan.folder()));
}

}  // namespace adtrain
