#include "collection/gpu/GpuLearner.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Random.h"
#include "collection/ActorCritic.h"
#include "collection/Divergence.h"
#include "collection/Ppo.h"

namespace adtrain {
namespace {

static_assert(gpu::kActions == kActions);

/// Calls `work(i)` for i in 0 … count − 1 from several threads.
void in_parallel(size_t count, int64_t threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> workers;
  for (int64_t i = 0; i < std::min(threads, static_cast<int64_t>(count)); ++i) {
    workers.emplace_back([&] {
      for (size_t item = next++; item < count; item = next++) work(item);
    });
  }
}

constexpr const char* kOnTheCpu = "set device: cpu to collect on the CPU";

GpuProblem doable(const GpuProblem& problem, int64_t policies) {
  if (const std::optional<std::string> objection = GpuPpo::objection(problem)) {
    throw EnvironmentError(fmt::format("{}; {}", *objection, kOnTheCpu));
  }
  if (const int64_t room = GpuPpo::room_for(problem); room < policies) {
    throw EnvironmentError(
        fmt::format("source_policies is {}, and a task's policies learn at the same time; "
                    "this GPU has memory left for {}; choose fewer, or {}",
                    policies, room, kOnTheCpu));
  }
  return problem;
}

}  // namespace

GpuProblem gpu_problem(const TaskFamily& family, const CollectionOptions& options, const PpoSettings& ppo) {
  return {.ppo = ppo,
          .grid_size = static_cast<int32_t>(family.grid_size()),
          .horizon = family.horizon(),
          .kept_streams = options.streams_kept_of_policy(),
          .terminal_next_states = options.terminal_next_states};
}

GpuHistories::GpuHistories(const GpuProblem& problem, int64_t capacity, int64_t policies)
    : problem_(problem),
      policies_(policies),
      bytes_(static_cast<size_t>(capacity * policies * problem.kept_steps() * gpu::kBytesOfTransition)) {}

std::vector<History> GpuHistories::histories(size_t index) const {
  const auto policies = static_cast<size_t>(policies_);
  std::vector<History> of_policies;
  for (size_t policy = 0; policy < policies; ++policy)
    of_policies.push_back(history(index * policies + policy));
  return of_policies;
}

History GpuHistories::history(size_t learner) const {
  const auto transitions = static_cast<size_t>(problem_.kept_steps());
  const uint8_t* from = bytes_.data() + learner * transitions * gpu::kBytesOfTransition;
  const auto take = [&from](auto& to, size_t count) {
    to.assign(from, from + count);
    from += count;
  };
  History history;
  history.steps = problem_.ppo.history_steps();
  history.streams = problem_.kept_streams;
  take(history.states, 2 * transitions);
  take(history.next_states, 2 * transitions);
  take(history.actions, transitions);
  take(history.rewards, transitions);
  history.dones.assign(transitions, 0);
  for (int64_t last = problem_.horizon - 1; last < history.steps; last += problem_.horizon) {
    std::fill_n(&history.dones[history.at(last, 0)], history.streams, 1);
  }
  return history;
}

GpuLearner::GpuLearner(const TaskFamily& family, const CollectionOptions& options, const PpoSettings& ppo)
    : family_(family),
      options_(options),
      problem_(doable(gpu_problem(family, options, ppo), options.source_policies)),
      tasks_at_once_(std::clamp<int64_t>(GpuPpo::tasks_at_once(problem_) / options.source_policies, 1,
                                         family.task_count())),
      ppo_(problem_, tasks_at_once_ * options.source_policies) {}

bool GpuLearner::learn(std::span<const int64_t> tasks, const std::function<bool()>& stop,
                       GpuHistories& histories) {
  const auto policies = static_cast<size_t>(options_.source_policies);
  const size_t learners = tasks.size() * policies;
  std::vector<GpuTask> flat(learners);
  std::vector<float> weights(learners * gpu::kParameters);
  in_parallel(learners, options_.threads(), [&](size_t i) {
    const int64_t task = tasks[i / policies];
    // Begins as Ppo does: with the same numbers and networks.
    RandomStream random(seed_of(seed_of_policy(options_, family_, task, static_cast<int64_t>(i % policies))));
    ActorCritic networks(problem_.ppo, family_.grid_size(), random);
    flat[i] = gpu_task(family_.task(task), random.next());
    float* to = &weights[i * gpu::kParameters];
    to = std::ranges::copy(networks.policy_network().weights, to).out;
    std::ranges::copy(networks.value_network().weights, to);
  });
  ppo_.begin(flat, weights);
  for (int64_t rollout = 0; rollout < problem_.ppo.rollouts(); ++rollout) {
    if (stop && stop()) return false;
    if (rollout > 0) ppo_.update(rollout);  // what the last rollout taught would show in no history
    ppo_.roll_out(rollout);
  }
  check_soundness(tasks);
  ppo_.histories(histories.bytes_.data());
  return true;
}

void GpuLearner::check_soundness(std::span<const int64_t> tasks) const {
  const std::vector<int32_t> sound = ppo_.sound_rollouts();
  for (size_t learner = 0; learner < sound.size(); ++learner) {
    const int64_t rollouts = sound[learner];
    if (rollouts == problem_.ppo.rollouts()) continue;
    throw_diverged(std::to_string(tasks[learner / static_cast<size_t>(options_.source_policies)]),
                   rollouts * problem_.ppo.rollout_steps, rollouts, kOpinions, problem_.ppo.learning_rate);
  }
}

}  // namespace adtrain
