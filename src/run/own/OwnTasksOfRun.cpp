#include "run/own/OwnTasksOfRun.h"

#include <filesystem>
#include <optional>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/NumberRanges.h"
#include "evaluation/InContextEvaluation.h"
#include "run/EvaluationWorkers.h"

namespace adtrain {
namespace {

TaskScaling read_tasks(const std::filesystem::path& file) {
  if (std::filesystem::exists(file)) return TaskScaling::from_json(read_file(file), file.string());
  throw CheckpointError(fmt::format(
      "{} does not exist; expected which tasks the run was trained on, as training writes it there: copy a "
      "run's folder whole",
      file.string()));
}

/// Of the environments, as the run was trained for them.
TaskSpaces spaces_in(const RunConfig& config, const WorkerPool& workers) {
  return config.model_shape().spaces.at(group_in_workers(config, workers));
}

}  // namespace

std::string name_of_task(const WorkerPool& workers, int64_t task) {
  const auto& names = workers.hello().tasks;
  return names ? names->at(static_cast<size_t>(task)) : fmt::format("{}", task);
}

OwnTasksOfRun::OwnTasksOfRun(const RunFolder& run) : tasks_(read_tasks(run.tasks())) {}

const TaskScale* OwnTasksOfRun::find(const WorkerPool& workers, int64_t task,
                                     const std::string& group) const {
  return workers.hello().tasks ? tasks_.find(name_of_task(workers, task), group)
                               : tasks_.find_number(task, group);
}

TaskSplit OwnTasksOfRun::split(const RunConfig& config, const WorkerPool& workers) const {
  TaskSplit split;
  const std::string group = spaces_in(config, workers).group;
  if (const auto& names = workers.hello().tasks) {
    for (int64_t task = 0; task < std::ssize(*names); ++task) {
      const TaskScale* const known = find(workers, task, group);
      (known != nullptr && known->trained ? split.train : split.test).push_back(task);
    }
  } else {
    for (const TaskScale& task : tasks_.tasks()) {
      if (task.group == group && task.number != TaskScale::kNoNumber)
        (task.trained ? split.train : split.test).push_back(task.number);
    }
  }
  return split;
}

std::vector<int64_t> OwnTasksOfRun::evaluated(const RunConfig& config, const WorkerPool& workers) const {
  const TaskSplit split = this->split(config, workers);
  const std::string& named = config.evaluation.eval_tasks;
  const int64_t count = std::ssize(split.train) + std::ssize(split.test);
  if (workers.hello().tasks && !names_a_side(named) &&
      NumberRanges::parse(named).value().largest() >= count) {
    throw ConfigError(fmt::format("eval_tasks: found task {}; expected numbers of the TASKS of {}, 0 to {}",
                                  NumberRanges::parse(named).value().largest(), *config.worker.env_worker,
                                  count - 1));
  }
  return evaluated_tasks(config.evaluation, split);
}

std::vector<TaskScore> OwnTasksOfRun::scores(const RunConfig& config, const WorkerPool& workers,
                                             const std::vector<int64_t>& tasks) const {
  const std::string group = spaces_in(config, workers).group;
  std::vector<TaskScore> scores;
  for (const int64_t task : tasks) {
    const TaskScale* const known = find(workers, task, group);
    scores.push_back(known == nullptr ? TaskScore{}
                                      : TaskScore{known->random_score, known->expert_score, /*group=*/""});
  }
  return scores;
}

std::function<SpaceScale(std::span<const Trial>)> OwnTasksOfRun::scale(const RunConfig& config,
                                                                       const WorkerPool& workers) const {
  return [&workers, own = *this, reward_scale = config.data.reward_scale,
          spaces = spaces_in(config, workers)](std::span<const Trial> trials) {
    std::vector<at::Tensor> rewards, means, deviations;
    for (const Trial& trial : trials) {
      const TaskScale scale =
          own.tasks_.of(own.find(workers, trial.task, spaces.group), reward_scale, spaces.group);
      rewards.push_back(at::full({}, scale.reward_scale, at::kFloat));
      if (scale.mean.empty()) continue;
      means.push_back(at::tensor(scale.mean, at::kFloat).view(spaces.observation.shape));
      deviations.push_back(at::tensor(scale.deviation, at::kFloat).view(spaces.observation.shape));
    }
    if (means.empty()) return SpaceScale{at::stack(rewards), {}, {}};
    return SpaceScale{at::stack(rewards), at::stack(means), at::stack(deviations)};
  };
}

}  // namespace adtrain
