#include "run/inspect/LearningProgress.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "base/Cores.h"
#include "data/formats/Episodes.h"

namespace adtrain {
namespace {

constexpr size_t kParts = TaskProgress::kParts, kPartsOfATenth = kParts / 10;
constexpr size_t kWindowBytes = size_t{4} << 20;
constexpr int64_t kShortestWindow = 64, kLongestWindow = 65536;

/// A sum and what it is of.
struct Sum {
  double total = 0;
  int64_t count = 0;

  void add(double value) {
    total += value;
    ++count;
  }
  double mean() const {
    return count > 0 ? total / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
  }
};

Sum sum_of(const std::array<Sum, kParts>& parts, size_t first, size_t count) {
  Sum all;
  for (size_t part = first; part < first + count; ++part) {
    all.total += parts[part].total;
    all.count += parts[part].count;
  }
  return all;
}

/// Reads one task. Its histories are read side by side, as in files with time first they share chunks.
class TaskReading {
 public:
  TaskReading(const HistorySource& source, size_t task, std::atomic<int64_t>& steps_read,
              const std::atomic<bool>& stop)
      : source_(source),
        histories_(source.tasks()[task]),
        group_(source.groups()[histories_.group]),
        steps_read_(steps_read),
        stop_(stop),
        finders_(histories_.steps.size()),
        marked_(histories_.steps.size()) {
    progress_.task = task;
  }

  TaskProgress read() {
    const ColumnKinds kinds = columns();
    size_t row = 1;
    for (const ColumnType& column : group_.columns)
      row += kinds.contains(column.kind) ? column.row_bytes() : 0;
    const int64_t length =
        std::clamp(static_cast<int64_t>(kWindowBytes / row), kShortestWindow, kLongestWindow);
    const int64_t longest = std::ranges::max(histories_.steps);
    HistoryWindow window;
    for (int64_t first = 0; first < longest && !stop_; first += length) {
      for (size_t history = 0; history < histories_.steps.size() && !stop_; ++history) {
        const int64_t count = std::min(length, histories_.steps[history] - first);
        if (count <= 0) continue;
        source_.read(progress_.task, history, first, count, kinds, window);
        look_at(window, history, first);
        steps_read_ += count;
      }
    }
    for (size_t part = 0; part < kParts; ++part) progress_.curve[part] = parts_[part].mean();
    progress_.first_tenth = sum_of(parts_, 0, kPartsOfATenth).mean();
    progress_.last_tenth = sum_of(parts_, kParts - kPartsOfATenth, kPartsOfATenth).mean();
    return progress_;
  }

 private:
  ColumnKinds columns() const {
    ColumnKinds kinds = EpisodeFinder::columns();
    const ColumnType* const observations = group_.find(ColumnKind::kObservations);
    if (observations != nullptr && !is_whole(observations->type)) kinds.add(ColumnKind::kObservations);
    return kinds;
  }

  void look_at(const HistoryWindow& window, size_t history, int64_t first) {
    progress_.steps += window.steps;
    for (const Column& column : window.columns) {
      const std::optional<int64_t> row = column.first_not_finite();
      if (!row || marked_[history].contains(column.type.kind)) continue;
      marked_[history].add(column.type.kind);
      progress_.not_finite.push_back(fmt::format("{}, history {}, step {}: {}", histories_.name, history,
                                                 first + *row, name_of(column.type.kind)));
    }
    episodes_.clear();
    finders_[history].add(window, episodes_);
    for (const Episode& episode : episodes_) {
      const auto part =
          static_cast<size_t>(episode.last_step * static_cast<int64_t>(kParts) / histories_.steps[history]);
      parts_[part].add(episode.episode_return);
      ++progress_.episodes;
      progress_.episode_steps += episode.steps;
    }
  }

  const HistorySource& source_;
  const TaskHistories& histories_;
  const SpaceGroup& group_;
  std::atomic<int64_t>& steps_read_;
  const std::atomic<bool>& stop_;
  std::vector<EpisodeFinder> finders_;
  std::vector<ColumnKinds> marked_;  ///< of each history: columns in which something was found
  std::vector<Episode> episodes_;
  std::array<Sum, kParts> parts_;
  TaskProgress progress_;
};

}  // namespace

std::vector<TaskProgress> learning_progress(const HistorySource& source, const std::vector<size_t>& tasks,
                                            const std::function<void(int64_t steps)>& listen) {
  std::vector<TaskProgress> results(tasks.size());
  std::atomic<size_t> next{0};
  std::atomic<int64_t> steps_read{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable ended;
  std::exception_ptr failure;
  const size_t workers = std::min(tasks.size(), static_cast<size_t>(usable_cores()));
  size_t running = workers;
  const auto work = [&] {
    try {
      for (size_t i = next++; i < tasks.size() && !stop; i = next++)
        results[i] = TaskReading(source, tasks[i], steps_read, stop).read();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      stop = true;
    }
    const std::lock_guard lock(mutex);
    --running;
    ended.notify_one();
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < workers; ++i) threads.emplace_back(work);
    constexpr auto kBetween = std::chrono::milliseconds(100);
    std::unique_lock lock(mutex);
    bool long_work = false;
    while (!ended.wait_for(lock, kBetween, [&] { return running == 0; })) {
      listen(steps_read);
      long_work = true;
    }
    if (long_work) listen(steps_read);
  }
  if (failure) std::rethrow_exception(failure);
  return results;
}

MeanOverTasks MeanOverTasks::of(const std::vector<TaskProgress>& tasks,
                                const std::function<double(const TaskProgress& task)>& value) {
  std::vector<double> values;
  for (const TaskProgress& task : tasks) {
    if (const double found = value(task); std::isfinite(found)) values.push_back(found);
  }
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double found : values) sum += found;
  const double mean = values.empty() ? std::numeric_limits<double>::quiet_NaN() : sum / count;
  for (const double found : values) squares += (found - mean) * (found - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (count - 1)) : 0,
          static_cast<int64_t>(values.size())};
}

}  // namespace adtrain
