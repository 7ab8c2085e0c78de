#include "collection/Collector.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/Clock.h"
#include "collection/Ppo.h"
#include "data/HistoryFileWriter.h"

namespace adtrain {
namespace {

/// Everything that the file's content follows from.
HistoryFileWriter::Settings settings_of(const TaskFamily& family, const CollectionOptions& options,
                                        const PpoSettings& ppo) {
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  return {
      {"env", family.name()},
      {"grid_size", text(family.grid_size())},
      {"horizon", text(family.horizon())},
      {"alg_seed", text(options.alg_seed)},
      {"n_stream", text(ppo.streams)},
      {"n_steps", text(ppo.rollout_steps)},
      {"batch_size", text(ppo.batch_size)},
      {"n_epochs", text(ppo.epochs)},
      {"total_source_timesteps", text(ppo.total_steps)},
      {"source_lr", text(ppo.learning_rate)},
      {"gamma", text(ppo.discount)},
      {"gae_lambda", text(ppo.gae_lambda)},
      {"clip_range", text(ppo.clip_range)},
      {"ent_coef", text(ppo.entropy_coefficient)},
      {"vf_coef", text(ppo.value_coefficient)},
      {"source_max_grad_norm", text(ppo.max_grad_norm)},
      {"write_compress_markers", text(options.write_compress_markers)},
      {"terminal_next_states", text(options.terminal_next_states)},
  };
}

/// The tasks still to be learnt, dealt to threads; the thread that owns it waits for what they report.
class TaskQueue {
 public:
  TaskQueue(std::vector<int64_t> tasks, std::function<bool()> stop)
      : tasks_(std::move(tasks)), stop_(std::move(stop)) {}

  /// Starts threads that each take tasks, until there are none or something stops them. `learn` returns a
  /// task's final return, or nothing where it was stopped.
  void start(int64_t threads, const std::function<std::optional<double>(int64_t task)>& learn) {
    running_ = std::min(threads, static_cast<int64_t>(tasks_.size()));
    for (int64_t i = 0; i < running_; ++i) threads_.emplace_back([this, learn] { work(learn); });
  }
  ~TaskQueue() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }

  bool stopping() {
    const std::lock_guard lock(mutex_);
    if (!stopping_ && stop_ && stop_()) stopping_ = true;
    return stopping_;
  }

  /// Waits for the next finished task's return; nothing when all threads have ended. Throws what a thread
  /// threw.
  std::optional<double> next_return() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return taken_ < returns_.size() || running_ == 0; });
    if (taken_ < returns_.size()) return returns_[taken_++];
    if (failure_) std::rethrow_exception(failure_);
    return std::nullopt;
  }

 private:
  void work(const std::function<std::optional<double>(int64_t)>& learn) {
    try {
      while (const std::optional<int64_t> task = take()) {
        const std::optional<double> earned = learn(*task);
        const std::lock_guard lock(mutex_);
        if (earned) returns_.push_back(*earned);
        changed_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stopping_ = true;
    }
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  std::optional<int64_t> take() {
    if (stopping()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    if (dealt_ == tasks_.size()) return std::nullopt;
    return tasks_[dealt_++];
  }

  std::vector<int64_t> tasks_;
  std::function<bool()> stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t dealt_ = 0;
  std::vector<double> returns_;
  size_t taken_ = 0;
  int64_t running_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

}  // namespace

Collector::Collector(const EnvironmentOptions& environment, const CollectionOptions& options)
    : family_(TaskFamily::of(environment)), options_(options), ppo_(options.ppo(environment.family())) {}

bool Collector::run(const std::filesystem::path& file, const CollectionListener& listener) const {
  HistoryFileWriter writer(file, family_.task_count(), settings_of(family_, options_, ppo_));
  const std::vector<int64_t> missing = writer.missing();
  const auto total = static_cast<int64_t>(missing.size());
  const Stopwatch watch;
  int64_t learnt = 0;
  double returns = 0;
  {
    TaskQueue queue(missing, listener.stop);
    queue.start(options_.threads(), [&](int64_t task) -> std::optional<double> {
      const std::optional<History> history = learn(task, [&queue] { return queue.stopping(); });
      if (!history) return std::nullopt;
      writer.write(task, *history);
      return history->final_return();
    });
    while (const std::optional<double> earned = queue.next_return()) {
      ++learnt;
      returns += *earned;
      if (!listener.progress) continue;
      const auto count = static_cast<double>(learnt);
      listener.progress({.tasks_done = family_.task_count() - total + learnt,
                         .tasks = family_.task_count(),
                         .mean_final_return = returns / count,
                         .seconds_left = watch.seconds() / count * static_cast<double>(total - learnt)});
    }
  }
  if (learnt < total) return false;
  writer.finish();
  return true;
}

std::optional<History> Collector::learn(int64_t task, const std::function<bool()>& stop) const {
  Ppo ppo(family_, task, ppo_, static_cast<uint64_t>(options_.alg_seed + task));
  std::optional<History> history = ppo.learn(options_.terminal_next_states, stop);
  if (history && options_.write_compress_markers) mark_rollouts(*history, ppo_.rollout_steps);
  return history;
}

}  // namespace adtrain
