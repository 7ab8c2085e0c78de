#include "run/EvaluationWorkers.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/File.h"
#include "collectives/StopRequest.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "evaluation/InContextEvaluation.h"
#include "evaluation/NormalizedScores.h"
#include "memory/AutoBatchSize.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

/// What the run's networks are trained for.
TaskSpaces trained_spaces(const RunConfig& config) {
  const ModelShape shape = config.model_shape();
  if (shape.spaces) return *shape.spaces;
  return {Space::multi_discrete({2}, {shape.grid_size}), Space::discrete(shape.num_actions),
          /*packed_digits=*/{}};
}

/// `whose`: "the family's tasks".
void check_numbers(const std::string& eval_tasks, int64_t count, const std::string& whose) {
  if (names_a_side(eval_tasks)) return;
  const int64_t largest = NumberRanges::parse(eval_tasks).value().largest();
  if (largest < count) return;
  throw ConfigError(
      fmt::format("eval_tasks: found task {}; expected numbers of {}, 0 to {}", largest, whose, count - 1));
}

}  // namespace

std::unique_ptr<WorkerPool> start_workers(const RunConfig& config, const PlayNotices::Say& say) {
  const WorkerOptions& options = config.worker;
  if (!options.env_worker) return nullptr;
  Activity::of_this_process().begin("starting the environment workers");
  auto workers = std::make_unique<WorkerPool>(options, say);
  workers->hello().expect_spaces(trained_spaces(config), *options.env_worker);
  return workers;
}

namespace {

/// Of a worker's TASKS, those that the run trained on and the others; without TASKS, the split's of the
/// numbers that `tasks` gives, or of one task.
TaskSplit split_of_own_tasks(const RunConfig& config, const WorkerPool& workers,
                             const TaskScaling& trained_on) {
  const auto& names = workers.hello().tasks;
  TaskSplit split;
  if (!names) {
    const int64_t count =
        config.tasks.tasks ? NumberRanges::parse(*config.tasks.tasks).value().largest() + 1 : 1;
    if (count > 1) return TaskSplit::of(config.environment, count, config.tasks);
    split.test = {0};
    return split;
  }
  const auto was_trained_on = [&](const std::string& name) {
    return std::ranges::any_of(trained_on.tasks(),
                               [&](const TaskScale& task) { return task.trained && task.task == name; });
  };
  for (int64_t task = 0; task < std::ssize(*names); ++task) {
    (was_trained_on((*names)[static_cast<size_t>(task)]) ? split.train : split.test).push_back(task);
  }
  return split;
}

std::string name_of_task(const WorkerPool& workers, int64_t task) {
  const auto& names = workers.hello().tasks;
  return names ? names->at(static_cast<size_t>(task)) : fmt::format("{}", task);
}

}  // namespace

std::vector<int64_t> tasks_in_workers(const RunConfig& config, const WorkerPool& workers) {
  if (config.environment.has_own_tasks()) {
    const TaskSplit split = split_of_own_tasks(config, workers, scaling_of(config));
    check_numbers(config.evaluation.eval_tasks, std::ssize(split.train) + std::ssize(split.test),
                  "the tasks of " + *config.worker.env_worker);
    return evaluated_tasks(config.evaluation, split);
  }
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

EvaluationOrigin::Worker origin_in_workers(const WorkerPool& workers, const std::vector<int64_t>& tasks) {
  EvaluationOrigin::Worker origin{*workers.options().env_worker, workers.options().max_episode_steps,
                                  /*task_names=*/{}};
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
                                         const std::vector<int64_t>& tasks) {
  if (!config.evaluation.eval_scores) return {};
  const TaskScores known = TaskScores::read(*config.evaluation.eval_scores);
  std::vector<TaskScore> scores;
  for (const int64_t task : tasks) scores.push_back(known.of(name_of_task(workers, task)));
  if (std::ranges::any_of(scores, [](const TaskScore& score) { return score.expert.has_value(); }))
    return scores;
  throw DataError(
      fmt::format("{}: it has an expert_score of none of the {} tasks that are evaluated; expected some of "
                  "their names, such as "
                  "'{}'",
                  *config.evaluation.eval_scores, tasks.size(), name_of_task(workers, tasks.front())));
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
  if (!scores.empty()) curve.scores = NormalizedScores::of(measured, scores);
  return curve;
}

TaskScaling scaling_of(const RunConfig& config) {
  const std::filesystem::path file = config.folder().tasks();
  if (!std::filesystem::exists(file)) return {};
  return TaskScaling::from_json(read_file(file), file.string());
}

std::function<SpaceScale(std::span<const Trial>)> scale_in_workers(const RunConfig& config,
                                                                   const WorkerPool& workers) {
  if (!config.environment.has_own_tasks()) return nullptr;
  return [&workers, scaling = scaling_of(config), reward_scale = config.data.reward_scale,
          shape = config.model_shape().spaces.value().observation.shape](std::span<const Trial> trials) {
    std::vector<at::Tensor> rewards, means, deviations;
    for (const Trial& trial : trials) {
      const TaskScale scale = scaling.of(name_of_task(workers, trial.task), reward_scale);
      rewards.push_back(at::full({}, scale.reward_scale, at::kFloat));
      if (scale.mean.empty()) continue;
      means.push_back(at::tensor(scale.mean, at::kFloat).view(shape));
      deviations.push_back(at::tensor(scale.deviation, at::kFloat).view(shape));
    }
    if (means.empty()) return SpaceScale{at::stack(rewards), {}, {}};
    return SpaceScale{at::stack(rewards), at::stack(means), at::stack(deviations)};
  };
}

}  // namespace adtrain
