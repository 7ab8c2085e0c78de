#include "run/EvaluationWorkers.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/NumberRanges.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "collectives/StopRequest.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "evaluation/InContextEvaluation.h"
#include "evaluation/NormalizedScores.h"
#include "memory/AutoBatchSize.h"
#include "run/LoadedNetwork.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

/// What the run's networks are trained for, of each group.
std::vector<TaskSpaces> trained_spaces(const RunConfig& config) {
  const ModelShape shape = config.model_shape();
  if (!shape.spaces.empty()) return shape.spaces;
  return {{Space::multi_discrete({2}, {shape.grid_size}), Space::discrete(shape.num_actions),
           /*packed_digits=*/{}}};
}

/// `whose`: "the family's tasks".
void check_numbers(const std::string& eval_tasks, int64_t count, const std::string& whose) {
  if (names_a_side(eval_tasks)) return;
  const int64_t largest = NumberRanges::parse(eval_tasks).value().largest();
  if (largest < count) return;
  throw ConfigError(
      fmt::format("eval_tasks: found task {}; expected numbers of {}, 0 to {}", largest, whose, count - 1));
}

/// Says which tasks are not placed, as what is known of them would turn their scale round.
void warn_of_reversed(const std::vector<int64_t>& tasks, const std::vector<TaskScore>& scores) {
  std::vector<int64_t> reversed;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i].has_both() && !scores[i].is_scale()) reversed.push_back(tasks[i]);
  }
  if (reversed.empty()) return;
  // Standard output may be left to a document.
  Console::for_process(/*enabled=*/true, stderr)
      .warn(fmt::format(
          "normalised scores leave {} of {} tasks out, as their expert earns no more than random actions do, "
          "between which no return can be placed: {}; expected an expert's score above random's: collect "
          "histories of them in which the source learns, or name better scores by eval_scores",
          reversed.size(), scores.size(), abridged(NumberRanges::of(reversed).text())));
}

/// "; did you mean 'Ant-v4' by 'Ant-v5'?" of the first evaluated task whose name is nearly one of the file's.
/// Nothing where the file has any of them: names are right then.
std::string nearest_task(const TaskScores& known, const WorkerPool& workers,
                         const std::vector<int64_t>& tasks) {
  std::string found;
  for (const int64_t task : tasks) {
    const std::string name = name_of_task(workers, task), nearest = known.nearest(name);
    if (known.all().contains(name)) return "";
    if (found.empty() && !nearest.empty())
      found = fmt::format("; did you mean '{}' by '{}'?", abridged(name), abridged(nearest));
  }
  return found;
}

}  // namespace

PlayNotices::Say notices_of_rank(int64_t rank, Console* console) {
  return [rank, console](const std::string& sentence) {
    if (console != nullptr) {
      console->warn(sentence);
    } else {
      print_error(fmt::format("adtrain: rank {}: {}\n", rank, sentence));
    }
  };
}

std::unique_ptr<WorkerPool> start_workers(const RunConfig& config, const PlayNotices::Say& say) {
  const WorkerOptions& options = config.worker;
  if (!options.env_worker) return nullptr;
  Activity::of_this_process().begin("starting the environment workers");
  // How many tasks there are is not known before the workers say it.
  const int64_t batch = config.evaluation.eval_batch;
  auto workers = std::make_unique<WorkerPool>(
      options, say, batch == kAutoBatchSize ? std::numeric_limits<int64_t>::max() : batch);
  group_in_workers(config, *workers);
  return workers;
}

size_t group_in_workers(const RunConfig& config, const WorkerPool& workers) {
  const std::vector<TaskSpaces> groups = trained_spaces(config);
  const WorkerHello& hello = workers.hello();
  const std::string& env_worker = *config.worker.env_worker;
  if (groups.size() == 1) {
    hello.expect_spaces(groups.front(), env_worker);
    return 0;
  }
  std::vector<size_t> fitting;
  std::vector<std::string> lines;
  for (size_t group = 0; group < groups.size(); ++group) {
    const bool fits =
        groups[group].accepts_observations(hello.observation) && hello.action.fits(groups[group].action);
    const bool is_named = !config.worker.env_group || *config.worker.env_group == groups[group].group;
    if (fits && is_named) fitting.push_back(group);
    lines.push_back(fmt::format("{}: {}{}", groups[group].group, groups[group].text(),
                                fits ? ", which are the environments'" : ""));
  }
  if (fitting.size() == 1) return fitting.front();
  throw ConfigError(fmt::format(
      "env_worker: the environments of {} observe {} and act in {}, which are the spaces of {} groups that "
      "the run "
      "was trained on{}; expected one: {}. There are:\n  {}",
      env_worker, hello.observation.text(), hello.action.text(), fitting.empty() ? "none of the" : "several",
      config.worker.env_group ? fmt::format(" with env_group {}", abridged(*config.worker.env_group)) : "",
      fitting.empty() ? "make environments with the spaces of one" : "name it by env_group",
      join(lines, "\n  ")));
}

std::vector<int64_t> tasks_in_workers(const RunConfig& config, const WorkerPool& workers) {
  const std::string& env_worker = *config.worker.env_worker;
  if (const auto& names = workers.hello().tasks) {
    check_numbers(config.evaluation.eval_tasks, std::ssize(*names), "the TASKS of " + env_worker);
    TaskSplit split;
    split.test.resize(names->size());
    std::iota(split.test.begin(), split.test.end(), 0);
    return evaluated_tasks(config.evaluation, split);
  }
  const int64_t count = TaskFamily::of(config.environment).task_count();
  check_numbers(config.evaluation.eval_tasks, count,
                fmt::format("tasks of {}, as {} has no TASKS", config.environment.env, env_worker));
  return evaluated_tasks(config.evaluation, TaskSplit::of(config.environment, count, config.tasks));
}

at::ScalarType evaluated_type(const RunConfig& config, at::Device device) {
  const bool keeps = config.evaluation.eval_context == EvaluationContext::kRolling;
  const bool open = !config.evaluation.chosen_type() && !config.quantisation.is_on();
  return keeps && open ? config.training.compute_type(device) : loaded_type(config, device);
}

Rollouts::Player player_in_workers(AlgorithmDistillation& model, const Predictor& predict,
                                   const RollingPredictors& kept, const RunConfig& config,
                                   const WorkerPool& workers, const OwnTasksOfRun* own) {
  Rollouts::Player player = {predict, model.options(), model.shape()};
  const size_t group = group_in_workers(config, workers);
  const auto place = static_cast<int64_t>(group);
  if (own != nullptr) {
    player.scale = own->scale(config, workers);
    player.shape.spaces = {model.shape().spaces.at(group)};
    player.predict = of_group(player.predict, place);
  }
  player.kept = kept.of_group(place);
  return player;
}

EvaluationOrigin::Worker origin_in_workers(const WorkerPool& workers, const std::vector<int64_t>& tasks) {
  EvaluationOrigin::Worker origin = EvaluationOrigin::Worker::of(workers.options());
  if (!workers.hello().tasks) return origin;
  for (const int64_t task : tasks)
    origin.task_names.push_back((*workers.hello().tasks)[static_cast<size_t>(task)]);
  return origin;
}

std::optional<std::vector<double>> random_returns_in_workers(const RunConfig& config,
                                                             const std::vector<int64_t>& tasks,
                                                             WorkerPool& workers,
                                                             Communicator& communicator) {
  if (config.worker.env_random_episodes == 0) return std::nullopt;
  Activity::of_this_process().begin("measuring the random return");
  EvaluationOptions options = config.evaluation;
  options.eval_repeats = 1;
  options.eval_episodes = config.worker.env_random_episodes;
  options.eval_sampling = Sampling::kSample;
  if (options.eval_batch == kAutoBatchSize) options.eval_batch = EvaluationOptions{}.eval_batch;
  const auto measured = InContextEvaluation(tasks, options)
                            .measure(Rollouts::at_random(workers, options), communicator,
                                     [](int64_t, int64_t) { return StopRequest::signal_number() == 0; });
  if (!measured) return std::nullopt;
  const at::Tensor by_task = measured->returns.to(at::kDouble).mean({1, 2}).contiguous();
  return std::vector<double>(by_task.const_data_ptr<double>(),
                             by_task.const_data_ptr<double>() + by_task.numel());
}

std::vector<TaskScore> scores_in_workers(const RunConfig& config, const WorkerPool& workers,
                                         const std::vector<int64_t>& tasks, const OwnTasksOfRun* own) {
  const auto place_any = [&](const std::vector<TaskScore>& scores) {
    const bool measures_random = config.worker.env_random_episodes > 0;
    return std::ranges::any_of(
        scores, [&](const TaskScore& score) { return score.expert && (score.random || measures_random); });
  };
  std::vector<TaskScore> scores;
  if (!config.evaluation.eval_scores) {
    if (own != nullptr) scores = own->scores(config, workers, tasks);
    if (place_any(scores)) return scores;
    if (config.evaluation.eval_protocol != EvaluationProtocol::kVintix) return {};
    throw ConfigError(
        "eval_scores: found null with eval_protocol vintix, which places returns on a scale of random and "
        "expert returns; expected the file that has them: --set eval_scores=FILE "
        "(docs/own-environments.md#scores), or eval_protocol: none");
  }
  const TaskScores known = TaskScores::read(*config.evaluation.eval_scores);
  for (const int64_t task : tasks) scores.push_back(known.of(name_of_task(workers, task)));
  if (place_any(scores)) return scores;
  throw DataError(fmt::format(
      "{}: it has no expert_score with a random_score of any of the {} tasks that are evaluated, such as "
      "'{}'; expected both of one at least: name tasks as the worker's TASKS do, or have random scores "
      "measured by env_random_episodes{}",
      *config.evaluation.eval_scores, tasks.size(), abridged(name_of_task(workers, tasks.front())),
      nearest_task(known, workers, tasks)));
}

LearningCurve curve_in_workers(const InContextReturns& measured, std::vector<TaskScore> scores,
                               const std::optional<std::vector<double>>& random_returns) {
  LearningCurve curve = LearningCurve::without_bounds(measured);
  if (random_returns) {
    curve.random_floor = std::accumulate(random_returns->begin(), random_returns->end(), 0.0) /
                         static_cast<double>(random_returns->size());
    for (size_t i = 0; i < scores.size(); ++i) {
      if (!scores[i].random) scores[i].random = (*random_returns)[i];
    }
  }
  if (scores.empty()) return curve;
  warn_of_reversed(measured.tasks, scores);
  curve.scores = NormalizedScores::of(measured, scores);
  return curve;
}

}  // namespace adtrain
