#include "evaluation/InContextEvaluation.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Error.h"

namespace adtrain {
namespace {

/// Whether `yes` holds on every rank. Collective.
bool unanimous(bool yes, Communicator& communicator) {
  at::Tensor vote = at::full({1}, yes ? 1 : 0, at::kLong);
  communicator.all_reduce(vote, ReduceOp::kMin);
  return *vote.const_data_ptr<int64_t>() == 1;
}

}  // namespace

std::vector<int64_t> evaluated_tasks(const EvaluationOptions& options, const TaskSplit& split) {
  const std::string& named = options.eval_tasks;
  std::vector<int64_t> tasks = named == "test" ? split.test : split.train;
  if (!names_a_side(named)) {
    tasks = NumberRanges::parse(named).value().numbers();
  } else if (named == "all") {
    tasks.insert(tasks.end(), split.test.begin(), split.test.end());
    std::ranges::sort(tasks);
  }
  if (tasks.empty()) {
    throw ConfigError(fmt::format(
        "there are no tasks to evaluate: the split has {} train and {} test tasks; expected one at least; "
        "change eval_tasks, which may also name tasks by number, or tasks, train_tasks or train_env_ratio",
        split.train.size(), split.test.size()));
  }
  const int64_t limit = options.eval_task_limit.value_or(std::ssize(tasks));
  if (limit < std::ssize(tasks)) tasks.resize(static_cast<size_t>(limit));
  return tasks;
}

InContextEvaluation::InContextEvaluation(std::vector<int64_t> tasks, const EvaluationOptions& options)
    : tasks_(std::move(tasks)), options_(options) {}

std::optional<InContextReturns> InContextEvaluation::measure(const Rollouts& rollouts,
                                                             Communicator& communicator,
                                                             const Progress& progress) const {
  const int64_t world = communicator.world_size();
  const int64_t rounds = (groups() + world - 1) / world;
  // Each trial is rolled out by one rank and zero on all others, so the sum over ranks is exact.
  at::Tensor returns = at::zeros({trials(), options_.eval_episodes}, at::kFloat);
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t group = round * world + communicator.rank();
    RunEpisode run_episode;
    if (group < groups()) run_episode = rollouts.begin(group_trials(group));
    for (int64_t episode = 0; episode < options_.eval_episodes; ++episode) {
      if (run_episode) {
        const std::vector<float> earned = run_episode();
        returns.select(1, episode)
            .narrow(0, group_begin(group), std::ssize(earned))
            .copy_(at::tensor(earned));
      }
      const int64_t done = round * options_.eval_episodes + episode + 1;
      const bool go_on = !progress || progress(done, rounds * options_.eval_episodes);
      if (!unanimous(go_on, communicator)) return std::nullopt;
    }
  }
  communicator.all_reduce(returns, ReduceOp::kSum);
  return InContextReturns{tasks_,
                          returns.view({std::ssize(tasks_), options_.eval_repeats, options_.eval_episodes})};
}

int64_t InContextEvaluation::trials() const {
  return std::ssize(tasks_) * options_.eval_repeats;
}

int64_t InContextEvaluation::groups() const {
  return (trials() + options_.eval_batch - 1) / options_.eval_batch;
}

int64_t InContextEvaluation::group_begin(int64_t group) const {
  return trials() * group / groups();
}

Trial InContextEvaluation::trial(int64_t number) const {
  return {tasks_[static_cast<size_t>(number / options_.eval_repeats)], number % options_.eval_repeats};
}

std::vector<Trial> InContextEvaluation::group_trials(int64_t group) const {
  std::vector<Trial> members;
  for (int64_t i = group_begin(group); i < group_begin(group + 1); ++i) members.push_back(trial(i));
  return members;
}

}  // namespace adtrain
