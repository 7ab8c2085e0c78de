#include "run/Evaluate.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/File.h"
#include "base/StandardStreams.h"
#include "base/SymbolicLink.h"
#include "base/Text.h"
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
#include "run/LoadedNetwork.h"
#include "run/Ranks.h"
#include "run/ResultsFolder.h"
#include "run/RunConfig.h"
#include "run/SpreadNetwork.h"
#include "run/TrainedRun.h"
#include "run/own/OwnTasksOfRun.h"
#include "telemetry/Console.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// What is evaluated, and the folder of its results.
struct Plan {
  TrainedRun trained;
  std::optional<TaskFamily> family;  ///< nothing for own tasks
  std::optional<OwnTasksOfRun> own;  ///< once workers play them
  std::vector<int64_t> tasks;
  EvaluationOrigin origin;
  EvaluationOptions options;
  EvaluationOptions usual;  ///< as the run's own configuration has them
  bool spread = false;      ///< whether the network is, over the devices of device_map
  std::vector<std::string> notices = {};

  /// `notices`: those of the configuration.
  static Plan of(const TrainedRun& trained, const RunConfig& config, std::vector<std::string> notices);
  /// Makes this the plan of an evaluation in a worker's environments, which say what tasks there are.
  void play_in(const WorkerPool& workers, const RunConfig& config);
  /// The folder for the results, or for the failure file. Another evaluation may have taken a folder since
  /// the last call.
  fs::path folder() const {
    return evaluation_folder(trained.folder.evaluation(), identity(), options, usual);
  }
  nlohmann::ordered_json identity() const { return evaluation_identity(tasks, origin, options); }
};

/// Of the keys that change what the network is shown while its weights still fit, those that differ from the
/// run's own configuration.
nlohmann::ordered_json shown_otherwise(const RunConfig& config, const RunConfig& own) {
  nlohmann::ordered_json keys = nlohmann::ordered_json::object();
  if (config.model.n_transit != own.model.n_transit) keys["n_transit"] = config.model.n_transit;
  if (config.model.compressed() && config.model.compress_interval != own.model.compress_interval)
    keys["compress_interval"] = config.model.compress_interval;
  if (config.data.reward_scale != own.data.reward_scale) keys["reward_scale"] = config.data.reward_scale;
  return keys;
}

Plan Plan::of(const TrainedRun& trained, const RunConfig& config, std::vector<std::string> notices) {
  const EnvironmentOptions& environment = config.environment;
  std::optional<TaskFamily> family;
  if (!environment.has_own_tasks()) family = TaskFamily::of(environment);
  if (!family && !config.worker.env_worker) {
    throw ConfigError(
        fmt::format("env: '{}' is no task family of ours, and env_worker is not set; expected where its "
                    "environments come from: --set env_worker=module:function (docs/own-environments.md)",
                    environment.env));
  }
  const RunConfig own_config = read_leniently(read_file(trained.folder.config()));
  Plan plan{trained,
            family,
            /*own=*/std::nullopt,
            /*tasks=*/{},
            EvaluationOrigin::of(environment, family, trained.named_step()),
            config.evaluation,
            own_config.evaluation,
            /*spread=*/false,
            std::move(notices)};
  plan.origin.quantisation = config.quantisation.identity();
  plan.origin.shown_otherwise = shown_otherwise(config, own_config);
  plan.spread = SpreadNetwork::is_wanted(config, plan.notices);
  if (plan.spread && config.evaluation.planning_horizon > 0) {
    const std::string because = "with planning_horizon a network plans on one device";
    if (*config.placement.device_map != "auto") {
      throw ConfigError(
          fmt::format("{}: found '{}', and {}; expected planning_horizon: 0, or device_map: null",
                      config.place_of("device_map"), abridged(*config.placement.device_map), because));
    }
    plan.notices.push_back("device_map: auto has no effect: " + because);
    plan.spread = false;
  }
  if (config.worker.env_worker) {
    plan.origin.worker = EvaluationOrigin::Worker::of(config.worker);
  } else {
    const TaskSplit split = TaskSplit::of(environment, family->task_count(), config.tasks);
    plan.tasks = evaluated_tasks(config.evaluation, split);
  }
  return plan;
}

void Plan::play_in(const WorkerPool& workers, const RunConfig& config) {
  if (config.environment.has_own_tasks()) own.emplace(trained.folder);
  tasks = own ? own->evaluated(config, workers) : tasks_in_workers(config, workers);
  origin.worker = origin_in_workers(workers, tasks);
}

ResultsFolder results_folder(const Plan& plan) {
  return {
      plan.folder(),
      "copy the run, beside which adtrain evaluate writes, to a place that can be written and evaluate the "
      "copy"};
}

/// Writes the results and makes them the newest. Returns their folder. Throws ConfigError where the run was
/// replaced since its weights were loaded.
fs::path write_results(const Plan& plan, const InContextReturns& measured, const LearningCurve& curve,
                       Console& console) {
  const ResultsFolder results = results_folder(plan);
  const fs::path& folder = results.path;
  plan.trained.refuse_if_replaced(folder);
  results.write([&] {
    write_evaluation(folder, measured, curve, plan.origin, plan.options);
    results.forget_earlier_starts();
  });
  try {
    remove_incomplete_evaluation(folder.parent_path(), plan.identity(), plan.options, plan.usual);
  } catch (const fs::filesystem_error& error) {
    console.warn(fmt::format(
        "the results are written, but what an evaluation that failed had kept of them was not removed: {}",
        error.what()));
  }
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
  const fs::path folder = incomplete_evaluation_folder(plan.trained.folder.evaluation(), plan.identity(),
                                                       plan.options, plan.usual);
  try {
    plan.trained.refuse_if_replaced(folder);
    write_evaluation(folder, played, LearningCurve::without_bounds(played), origin, plan.options);
    say(fmt::format("what was played before is kept: {} of {} episodes of {} of {} tasks, in {}",
                    played.episodes(), plan.options.eval_episodes, played.tasks.size(), plan.tasks.size(),
                    folder.string()));
  } catch (const fs::filesystem_error& error) {
    say(fmt::format("what was played before is lost: {}", error.what()));
  } catch (const ConfigError& error) {
    say(fmt::format("what was played before is not kept: {}", error.what()));
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

ExitCode evaluate_as_rank(const EvaluateRequest& request, Plan plan, const RunConfig& config,
                          const Ranks& ranks) {
  Communicator& communicator = *ranks.communicator;
  Console console = Console::for_process(communicator.is_root(), request.json ? stderr : stdout);
  const StopRequest stop;
  const PlayNotices::Say say =
      notices_of_rank(ranks.context.rank, communicator.is_root() ? &console : nullptr);

  const ModelShape shape = config.model_shape();
  const bool on_gpus_of_map = plan.spread && SpreadNetwork::takes_gpus(config);
  plan.origin.type = evaluated_type(config, on_gpus_of_map ? at::Device(at::kCUDA) : ranks.device.device);
  const LoadedNetwork loaded = LoadedNetwork::of(config, plan.trained, ranks, plan.origin.type, console);
  const auto& model = loaded.model;
  plan.origin.checkpoint_step = loaded.step;
  const std::unique_ptr<WorkerPool> workers = start_workers(config, say);
  std::vector<TaskScore> scores;
  if (workers) {
    plan.play_in(*workers, config);
    scores = scores_in_workers(config, *workers, plan.tasks, plan.own ? &*plan.own : nullptr);
  }
  if (communicator.is_root()) results_folder(plan).check();
  const bool captures =
      can_be_captured(config, kernels::DeviceTraits::of(ranks.device.device), plan.origin.type);
  std::optional<SpreadNetwork> spread;
  Predictor predict = predictor_of(*model);
  RollingPredictors kept;
  if (plan.spread) {
    const bool rolls = config.evaluation.eval_context == EvaluationContext::kRolling;
    spread.emplace(config, ranks, *model,
                   rolls ? SpreadNetwork::Rows::kGrowing : SpreadNetwork::Rows::kWindows);
    int64_t& batch = plan.options.eval_batch;
    if (batch == kAutoBatchSize) batch = spread->fitting_rows(EvaluationOptions{}.eval_batch);
    spread->place(batch);
    predict = predictor_of(spread->network(), spread->micro_batches());
    if (rolls) kept = rolling_predictors_of(spread->network(), *model);
  } else {
    kept = rolling_predictors_of(*model, config.evaluation.eval_context, captures);
  }
  const auto rollouts_with = [&](const EvaluationOptions& options) {
    return workers  ? Rollouts::in_workers(player_in_workers(*model, predict, kept, config, *workers,
                                                            plan.own ? &*plan.own : nullptr),
                                           *workers, options)
           : spread ? Rollouts::stepwise(predict, *plan.family, model->options(), options, kept)
                    : Rollouts::of(*model, *plan.family, options, captures);
  };
  if (plan.options.eval_batch == kAutoBatchSize) {
    EvaluationOptions never_emptied = config.evaluation;  // contexts that grow take the most memory
    never_emptied.eval_forget_unrewarded.reset();
    plan.options.eval_batch = find_evaluation_batch(config, InContextEvaluation(plan.tasks, plan.options),
                                                    rollouts_with(never_emptied), ranks, console);
  }
  const Rollouts rollouts = rollouts_with(config.evaluation);
  const InContextEvaluation evaluation(plan.tasks, plan.options);
  console.banner(
      "In-context evaluation, weights frozen",
      {{"checkpoint",
        fmt::format("step {} of {}", plan.origin.checkpoint_step, plan.trained.folder.root.string())},
       {"tasks", fmt::format("{} of {}: {}", plan.tasks.size(),
                             config.worker.env_worker.value_or(config.environment.family_name()),
                             abridged(config.evaluation.eval_tasks))},
       {"episodes",
        fmt::format("{} × {} repeats", config.evaluation.eval_episodes, config.evaluation.eval_repeats)},
       {"processes", fmt::format("{}, {}", ranks.context.world_size, launcher_name(ranks.context.launcher))},
       {"device", fmt::format("{}; {}", spread ? spread->device_name() : ranks.device.name, rollouts.place)},
       {"results", plan.folder().string()}});
  for (const std::string& notice : plan.notices) console.notice(notice);
  if (!ranks.device.notice.empty()) console.notice(ranks.device.notice);
  if (!loaded.weights.empty()) console.info("weights in " + loaded.weights);
  for (const std::string& warning : loaded.warnings) console.warn(warning);
  if (spread) spread->show(console);
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
    if (communicator.is_root()) results_folder(plan).ask_for_requeue();
    return stop_code(ranks.context.launcher);
  }
  if (!communicator.is_root()) return ExitCode::kDone;

  const LearningCurve curve = workers ? curve_in_workers(*measured, scores, random_returns)
                                      : LearningCurve::of(*measured, *plan.family);
  // Before anything is written: a disk that is full by now must not cost the figures, too.
  if (request.json) {
    print_answer(summary_json(*measured, curve, plan.origin, plan.options));
  } else {
    console.info(text_of(curve));
  }
  const fs::path folder = write_results(plan, *measured, curve, console);
  console.info(fmt::format("learning curve {}/learning_curve.png, figures {}/summary.json", folder.string(),
                           folder.string()));
  return ExitCode::kDone;
}

}  // namespace

ExitCode evaluate(const EvaluateRequest& request) {
  const TrainedRun trained = TrainedRun::at(request.target);
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(trained.folder.config(), request.overrides, notices);
  const Plan plan = Plan::of(trained, config, std::move(notices));
  RunConfig of_ranks = config;
  if (plan.spread) of_ranks.run.device = DeviceChoice::kCpu;  // the map takes the GPUs
  return as_one_of_the_ranks(
      of_ranks, [&](const Ranks& ranks) { return evaluate_as_rank(request, plan, config, ranks); },
      results_folder(plan).failure());
}

}  // namespace adtrain
