#include "collection/own/OwnCollector.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "collection/CollectionSettings.h"
#include "collection/TaskQueue.h"
#include "collection/own/RandomScore.h"
#include "environments/worker/WorkerFault.h"

namespace adtrain {
namespace {

/// A space as an attribute of the file. HDF5 has no room for longer ones.
std::string attribute_of(const Space& space, const std::string& env_worker) {
  constexpr size_t kLongest = 60'000;
  std::string json = space.to_json();
  if (json.size() <= kLongest) return json;
  throw ConfigError(
      fmt::format("env_worker: {} has the space {}, whose description takes {} bytes, and a history file "
                  "has room for {}; expected fewer elements, or the same bounds for all",
                  env_worker, space.text(), json.size(), kLongest));
}

OwnPpoSettings learning_of(const EnvironmentOptions& environment, const CollectionOptions& options) {
  return {.ppo = options.ppo(environment.family()),
          .units = options.source_hidden_units,
          .normalize_observations = options.source_normalize_observations,
          .kept_streams = options.streams_kept()};
}

/// What threads say, until the thread that waits for them passes it on.
class PassedOn {
 public:
  void add(const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    sentences_.push_back(sentence);
  }
  void pass_on(const PlayNotices::Say& say) {
    const std::lock_guard lock(mutex_);
    if (say) std::ranges::for_each(sentences_, say);
    sentences_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> sentences_;
};

/// All environments of a task step at once: their actions come from one forward pass, whatever the workers.
WorkerOptions in_lock_step(WorkerOptions options) {
  options.env_overlap = false;
  return options;
}

}  // namespace

OwnCollector::OwnCollector(const EnvironmentOptions& environment, const CollectionOptions& options,
                           const WorkerOptions& workers, const WorkerHello& hello, const TaskOptions& tasks)
    : tasks_(tasks_of(hello, tasks, *workers.env_worker)),
      options_(options),
      workers_(in_lock_step(workers)),
      hello_(hello),
      learning_(learning_of(environment, options)),
      settings_(own_collection_settings(environment, options, workers)),
      compression_(options.compression(environment.family())) {
  const ActionDistribution can_be_drawn_from(hello.action);
  settings_["observation-space"] = attribute_of(hello.observation, *workers.env_worker);
  settings_["action-space"] = attribute_of(hello.action, *workers.env_worker);
}

NumberRanges OwnCollector::tasks_of(const WorkerHello& hello, const TaskOptions& tasks,
                                    const std::string& env_worker) {
  if (!hello.tasks) return tasks.present(1);
  const auto count = std::ssize(*hello.tasks);
  NumberRanges present = tasks.present(count);
  if (present.largest() < count) return present;
  throw ConfigError(fmt::format("tasks: found task {}; expected numbers of the TASKS of {}, 0 to {}",
                                present.largest(), env_worker, count - 1));
}

int64_t OwnCollector::file_bytes() const {
  const auto bytes_of = [](const Space& space) {
    return static_cast<int64_t>(size_of(space.type)) * space.size();
  };
  constexpr int64_t kRewardAndEnds = 4 + 2;
  return tasks_.count() * learning_.ppo.history_steps() * learning_.kept_streams *
         (bytes_of(hello_.observation) + bytes_of(hello_.action) + kRewardAndEnds);
}

int64_t OwnCollector::tasks_at_once() const {
  return std::min(options_.threads(), tasks_.count());
}

bool OwnCollector::run(const std::filesystem::path& file, const CollectionListener& listener,
                       ExistingHistories existing) const {
  HistoryFileWriter writer(file, tasks_, settings_, static_cast<int>(compression_), existing,
                           HistoryVersion::kAnySpace);
  std::vector<double> returns;
  for (const auto& [task, finished] : finished_before(file, writer, existing)) {
    if (finished.final_return) returns.push_back(*finished.final_return);
  }
  PassedOn notices;
  const auto learn = [&](const std::vector<int64_t>& missing, const CollectionReport& report) {
    TaskQueue queue(missing, listener.stop);
    queue.start_each(tasks_at_once(), [&]() -> TaskQueue::Work {
      const std::shared_ptr<WorkerPool> workers =
          start_workers([&notices](const std::string& sentence) { notices.add(sentence); });
      return [&, workers](int64_t task) -> std::optional<double> {
        std::optional<OwnPpo::Learnt> learnt =
            learn_task(task, *workers, [&queue] { return queue.stopping(); });
        if (!learnt) return std::nullopt;
        writer.write(task, learnt->histories);
        return learnt->final_return.value_or(std::numeric_limits<double>::quiet_NaN());
      };
    });
    try {
      while (const std::optional<double> earned = queue.next_return()) {
        notices.pass_on(listener.notice);
        report(*earned);
      }
    } catch (...) {
      notices.pass_on(listener.notice);
      throw;
    }
  };
  return collect_missing(writer, tasks_, listener, learn, returns);
}

/// The tasks that the writer has. Settings know them by number, and once TASKS are edited a number is another
/// task's, so names are compared, too.
FinishedTasks OwnCollector::finished_before(const std::filesystem::path& file,
                                            const HistoryFileWriter& writer,
                                            ExistingHistories existing) const {
  FinishedTasks finished = read_finished(file, tasks_.without(NumberRanges::of(writer.missing())));
  const std::vector<std::string> differing = renamed(finished, hello_);
  if (differing.empty()) return finished;
  const std::filesystem::path folder = HistoryFileWriter::task_file(file, tasks_.smallest()).parent_path();
  if (existing == ExistingHistories::kRefuse) {
    throw DataError(fmt::format(
        "{}: a file was begun there with other tasks of {}: {}; expected the same TASKS in the same order: "
        "restore them to continue it, or remove the folder to begin anew, as --overwrite does",
        folder.string(), *workers_.env_worker, abridged(join(differing, ", "))));
  }
  for (const auto& [task, ignored] : finished)
    std::filesystem::remove(HistoryFileWriter::task_file(file, task));
  return {};
}

std::unique_ptr<WorkerPool> OwnCollector::start_workers(const PlayNotices::Say& say) const {
  auto workers = std::make_unique<WorkerPool>(workers_, say, learning_.ppo.streams);
  if (workers->hello().is_like(hello_)) return workers;
  throw WorkerFault(
      ExitCode::kUsage,
      fmt::format("{}: two worker processes found other spaces or tasks; expected the same in each: make_env "
                  "must not depend on what differs between processes",
                  *workers_.env_worker));
}

/// The histories, with what the file says of the task beside them.
std::optional<OwnPpo::Learnt> OwnCollector::learn_task(int64_t task, WorkerPool& workers,
                                                       const std::function<bool()>& stop) const {
  const auto seed = static_cast<uint64_t>(options_.alg_seed + task);
  const int64_t episodes = workers_.env_random_episodes;
  std::map<std::string, double> scores;
  if (episodes > 0) {
    const auto random = random_score(workers, task, episodes, learning_.ppo.streams, seed, stop);
    if (!random) return std::nullopt;
    scores["random-score"] = *random;
  }
  std::optional<OwnPpo::Learnt> learnt = OwnPpo(workers, task, learning_, seed).learn(stop);
  if (!learnt) return std::nullopt;
  RecordedTask& histories = learnt->histories;
  if (hello_.tasks) histories.texts["task"] = (*hello_.tasks)[static_cast<size_t>(task)];
  if (workers_.env_group) histories.texts["group"] = *workers_.env_group;
  if (learnt->final_return) scores["expert-score"] = *learnt->final_return;
  histories.scores = std::move(scores);
  return learnt;
}

}  // namespace adtrain
