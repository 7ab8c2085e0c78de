#include "evaluation/InContextEvaluation.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "environments/worker/WorkerFault.h"
#include "kernels/attention/LibraryAttention.h"

namespace adtrain {
namespace {

/// How a rank wants to go on after an episode. The least of all ranks' holds.
enum Vote : int64_t { kFailed = 0, kStop = 1, kGoOn = 2 };

Vote least_vote(Vote mine, Communicator& communicator) {
  at::Tensor vote = at::full({1}, static_cast<int64_t>(mine), at::kLong);
  communicator.all_reduce(vote, ReduceOp::kMin);
  return static_cast<Vote>(*vote.const_data_ptr<int64_t>());
}

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
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
                                                             const Progress& progress,
                                                             const Keep& keep) const {
  const kernels::AttentionOfChangingShapes of_changing_shapes;
  const int64_t world = communicator.world_size();
  const int64_t rounds = (groups() + world - 1) / world;
  // Each trial is rolled out by one rank and zero on all others, so the sum over ranks is exact.
  at::Tensor returns = at::zeros({trials(), options_.eval_episodes}, at::kFloat);
  at::Tensor played = at::zeros({trials()}, at::kLong);
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t group = round * world + communicator.rank();
    RunEpisode run_episode;
    for (int64_t episode = 0; episode < options_.eval_episodes; ++episode) {
      std::exception_ptr failure;
      try {
        if (episode == 0 && group < groups()) run_episode = rollouts.begin(group_trials(group));
        if (run_episode) {
          const std::vector<float> earned = run_episode();
          const int64_t first = group_begin(group), count = std::ssize(earned);
          returns.select(1, episode).narrow(0, first, count).copy_(at::tensor(earned));
          played.narrow(0, first, count) += 1;
        }
      } catch (const WorkerFault&) {
        failure = std::current_exception();
      }
      const int64_t done = round * options_.eval_episodes + episode + 1;
      const bool go_on = !progress || progress(done, rounds * options_.eval_episodes);
      const Vote vote = least_vote(failure ? kFailed : go_on ? kGoOn : kStop, communicator);
      if (vote == kGoOn) continue;
      if (vote == kStop) return std::nullopt;
      communicator.all_reduce(returns, ReduceOp::kSum);
      communicator.all_reduce(played, ReduceOp::kSum);
      if (keep) keep(complete_part(returns, numbers(played)));
      communicator.barrier();  // what is kept is written before a rank leaves
      if (failure) std::rethrow_exception(failure);
      throw PeerLostError("the environments of another rank failed");
    }
  }
  communicator.all_reduce(returns, ReduceOp::kSum);
  return InContextReturns{tasks_,
                          returns.view({std::ssize(tasks_), options_.eval_repeats, options_.eval_episodes})};
}

InContextReturns InContextEvaluation::complete_part(const at::Tensor& returns,
                                                    const std::vector<int64_t>& played) const {
  const int64_t repeats = options_.eval_repeats;
  std::vector<int64_t> episodes;  // that all repeats of a task have
  for (auto first = played.begin(); first != played.end(); first += repeats)
    episodes.push_back(*std::min_element(first, first + repeats));
  const auto tasks_with = [&](int64_t least) {
    return std::ranges::count_if(episodes, [&](int64_t number) { return number >= least; });
  };
  const int64_t kept = std::ranges::max(episodes, {}, [&](int64_t number) {
    return std::pair(number * tasks_with(number), tasks_with(number));
  });
  InContextReturns part;
  std::vector<at::Tensor> rows;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (kept == 0 || episodes[i] < kept) continue;
    part.tasks.push_back(tasks_[i]);
    rows.push_back(returns.narrow(0, static_cast<int64_t>(i) * repeats, repeats).narrow(1, 0, kept));
  }
  part.returns = rows.empty() ? at::zeros({0, repeats, 0}, at::kFloat) : at::stack(rows);
  return part;
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
