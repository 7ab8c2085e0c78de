#include "collection/Collector.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "collection/CollectionSettings.h"
#include "collection/OptimalActions.h"
#include "collection/Ppo.h"
#include "collection/TaskQueue.h"
#include "collection/gpu/GpuLearner.h"

namespace adtrain {
namespace {

/// The settings that the file records, and the device: GPU and CPU have different random numbers.
HistorySettings settings_of(const EnvironmentOptions& environment, const CollectionOptions& options,
                            CollectionDevice device) {
  HistorySettings settings = collection_settings(environment, options);
  if (device == CollectionDevice::kGpu) settings["collected_on"] = "GPU";
  return settings;
}

}  // namespace

Collector::Collector(const EnvironmentOptions& environment, const CollectionOptions& options,
                     CollectionDevice device, const TaskOptions& tasks)
    : family_(TaskFamily::of(environment)),
      tasks_(tasks.present(family_.task_count())),
      settings_(settings_of(environment, options, device)),
      options_(options),
      ppo_(options.ppo(environment.family())),
      compression_(options.compression(environment.family())),
      device_(device) {}

std::optional<std::string> Collector::gpu_objection() const {
  if (family_.plugin() != nullptr)
    return fmt::format("the environments of {}, a plug-in's, run on the CPU alone", family_.name());
  return GpuPpo::objection(gpu_problem(family_, options_, ppo_));
}

int64_t Collector::file_bytes() const {
  const bool marked = options_.write_compress_markers == RolloutMarkers::kYes;
  const int64_t integers = 6 + (marked ? 1 : 0) + (options_.optimal_actions ? 1 : 0);  // and dones
  return tasks_.count() * ppo_.history_steps() * options_.streams_kept() * (4 * integers + 1);
}

bool Collector::run(const std::filesystem::path& file, const CollectionListener& listener,
                    ExistingHistories existing) const {
  HistoryFileWriter writer(file, tasks_, settings_, static_cast<int>(compression_), existing);
  return collect_missing(writer, tasks_, listener,
                         [&](const std::vector<int64_t>& missing, const Report& report) {
                           if (device_ == CollectionDevice::kGpu) {
                             learn_on_gpu(missing, listener.stop, writer, report);
                           } else {
                             learn_on_cpu(missing, listener.stop, writer, report);
                           }
                         });
}

void Collector::learn_on_cpu(const std::vector<int64_t>& tasks, const std::function<bool()>& stop,
                             HistoryFileWriter& writer, const Report& report) const {
  TaskQueue queue(tasks, stop);
  queue.start(options_.threads(), [&](int64_t task) -> std::optional<double> {
    std::vector<History> policies;
    for (int64_t policy = 0; policy < options_.source_policies; ++policy) {
      Ppo ppo(family_, task, ppo_, seed_of_policy(options_, family_, task, policy));
      std::optional<History> history =
          ppo.learn(options_.terminal_next_states, [&queue] { return queue.stopping(); });
      if (!history) return std::nullopt;
      history->keep_streams(options_.streams_kept_of_policy());
      policies.push_back(std::move(*history));
    }
    return write(task, std::move(policies), writer);
  });
  while (const std::optional<double> earned = queue.next_return()) report(*earned);
}

void Collector::learn_on_gpu(const std::vector<int64_t>& tasks, const std::function<bool()>& stop,
                             HistoryFileWriter& writer, const Report& report) const {
  if (tasks.empty()) return;
  GpuLearner learner(family_, options_, ppo_);
  const auto batch = static_cast<size_t>(learner.tasks_at_once());
  // While one batch is learnt, threads write the previous one.
  std::unique_ptr<GpuHistories> learning, written;
  std::optional<TaskQueue> writing;
  const auto finish_writing = [&] {
    if (!writing) return;
    while (const std::optional<double> earned = writing->next_return()) report(*earned);
    writing.reset();
  };
  for (size_t begin = 0; begin < tasks.size(); begin += batch) {
    const auto now = std::span(tasks).subspan(begin, std::min(batch, tasks.size() - begin));
    if (!learning) learning = learner.make_histories();
    const bool learnt = learner.learn(now, stop, *learning);
    finish_writing();
    if (!learnt) return;
    std::swap(learning, written);
    writing.emplace(std::vector<int64_t>(now.begin(), now.end()), nullptr);
    writing->start(options_.threads(), [this, now, &written, &writer](int64_t task) {
      const auto index = static_cast<size_t>(std::ranges::lower_bound(now, task) - now.begin());
      return write(task, written->histories(index), writer);
    });
  }
  finish_writing();
}

double Collector::write(int64_t task, std::vector<History> policies, HistoryFileWriter& writer) const {
  History history = policies.size() == 1 ? std::move(policies.front()) : History::interleaved(policies);
  if (options_.write_compress_markers == RolloutMarkers::kYes) mark_rollouts(history, ppo_.rollout_steps);
  history.keep_streams(options_.streams_kept());
  writer.write(
      task, history,
      options_.optimal_actions ? optimal_actions(family_.task(task), history) : std::vector<int32_t>());
  return history.final_return();
}

}  // namespace adtrain
