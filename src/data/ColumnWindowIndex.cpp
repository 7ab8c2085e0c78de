#include "data/ColumnWindowIndex.h"

#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/InParallel.h"
#include "base/Text.h"
#include "base/Words.h"
#include "config/Scalar.h"

namespace adtrain {
namespace {

/// Number `i` of `count` numbers that are evenly spread over 0 … total − 1: i·total ÷ count, rounded down.
int64_t spread(int64_t i, int64_t count, int64_t total) {
  __extension__ using Wide = __int128;  // the product of two numbers of windows
  return static_cast<int64_t>(static_cast<Wide>(i) * total / count);
}

}  // namespace

EpisodeChoice episodes_of(const TaskHistories& task) {
  EpisodeChoice choice;
  if (const auto sparsity = task.attributes.find("episode_sparsity"); sparsity != task.attributes.end()) {
    constexpr int64_t kMost = 1 << 30;
    choice.stride = Scalar<int64_t>::parse(sparsity->second).value_or(0);
    if (choice.stride < 1 || choice.stride > kMost) {
      throw DataError(fmt::format("{}: episode_sparsity is '{}'; expected a whole number above 0", task.name,
                                  abridged(sparsity->second)));
    }
  }
  if (const auto range = task.attributes.find("episode_range"); range != task.attributes.end()) {
    const std::vector<std::string> ends = between_commas(range->second);
    choice.from = Scalar<double>::parse(ends.front()).value_or(-1);
    choice.to = Scalar<double>::parse(ends.back()).value_or(-1);
    if (ends.size() != 2 || choice.from < 0 || choice.to <= choice.from || choice.to > 1) {
      throw DataError(fmt::format("{}: episode_range is '{}'; expected two shares of all episodes, as 0,0.5",
                                  task.name, abridged(range->second)));
    }
  }
  return choice;
}

ColumnWindowIndex::ColumnWindowIndex(const HistorySource& source, const std::vector<size_t>& tasks,
                                     const ColumnWindowShape& shape, size_t threads, const Progress& progress)
    : source_(source), shape_(shape) {
  size_t histories = 0;
  for (const size_t task : tasks) chosen_.push_back({task, 0});
  std::ranges::sort(chosen_, {}, &ChosenTask::task);
  std::vector<ColumnWindow> places;
  for (ChosenTask& chosen : chosen_) {
    chosen.first_history = histories;
    const auto there = static_cast<int64_t>(source.tasks()[chosen.task].steps.size());
    const int64_t used = shape.streams == kAllThereAre ? there : std::min(there, shape.streams);
    for (int64_t history = 0; history < used; ++history)
      places.push_back({chosen.task, static_cast<size_t>(history), 0});
    histories = places.size();
  }
  std::vector<EpisodeChoice> choices;
  for (const ColumnWindow& place : places) {
    choices.push_back(episodes_of(source.tasks()[place.task]));
    choices.back().stride *= shape.episode_stride;
  }
  if (!std::ranges::all_of(choices, &EpisodeChoice::all)) {
    thinned_.assign(places.size(), KeptSteps(0));
    std::atomic<int64_t> read = 0;
    in_parallel(places.size(), threads, [&](size_t i) {
      const auto& [task, history, start] = places[i];
      const int64_t steps = steps_of(task, history);
      thinned_[i] = choices[i].all() ? KeptSteps(steps)
                                     : KeptSteps::of_episodes(choices[i], source, task, history, steps);
      if (progress) progress(++read, static_cast<int64_t>(places.size()));
    });
  }
  first_window_ = {0};
  for (const auto& [task, history, start] : places) {
    first_window_.push_back(first_window_.back() + windows_in(thinned_.empty()
                                                                  ? KeptSteps(steps_of(task, history))
                                                                  : thinned_[first_window_.size() - 1],
                                                              steps_of(task, history)));
  }
  for (size_t chosen = 0; chosen < chosen_.size(); ++chosen)
    most_of_a_task_ = std::max(most_of_a_task_, windows_of_task(chosen));
  size_ = shape.weights == TaskWeights::kTasks ? most_of_a_task_ * static_cast<int64_t>(chosen_.size())
                                               : windows();
  if (shape.most_samples > 0) size_ = std::min(size_, shape.most_samples);
}

/// Of a history, those that may be used at all.
int64_t ColumnWindowIndex::steps_of(size_t task, size_t history) const {
  const int64_t there = source_.tasks()[task].steps[history];
  return shape_.steps == kAllThereAre ? there : std::min(there, shape_.steps);
}

size_t ColumnWindowIndex::place_of(size_t task) const {
  return static_cast<size_t>(std::ranges::lower_bound(chosen_, task, {}, &ChosenTask::task) -
                             chosen_.begin());
}

KeptSteps ColumnWindowIndex::kept(size_t task, size_t history) const {
  if (thinned_.empty()) return KeptSteps(steps_of(task, history));
  return thinned_.at(chosen_[place_of(task)].first_history + history);
}

int64_t ColumnWindowIndex::first_on_grid(const KeptSteps& kept, int64_t steps) const {
  if (shape_.last_fraction >= 1) return 0;
  const double bound = static_cast<double>(steps - 1) * (1 - shape_.last_fraction);
  int64_t low = 0, high = (kept.size() + shape_.stride - 1) / shape_.stride;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (static_cast<double>(kept.original(middle * shape_.stride)) >= bound) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

int64_t ColumnWindowIndex::windows_in(const KeptSteps& kept, int64_t steps) const {
  const int64_t starts = kept.size() - shape_.length + 1 - 2 * shape_.margin;
  if (starts <= 0) return 0;
  return std::max<int64_t>(0, (starts + shape_.stride - 1) / shape_.stride - first_on_grid(kept, steps));
}

int64_t ColumnWindowIndex::windows_of_task(size_t chosen) const {
  const size_t first = chosen_[chosen].first_history;
  const size_t end =
      chosen + 1 < chosen_.size() ? chosen_[chosen + 1].first_history : first_window_.size() - 1;
  const int64_t windows = first_window_[end] - first_window_[first];
  if (windows > 0) return windows;
  const TaskHistories& task = source_.tasks()[chosen_[chosen].task];
  int64_t longest = 0;
  for (size_t history = 0; history < end - first; ++history)
    longest = std::max(longest, kept(chosen_[chosen].task, history).size());
  throw DataError(fmt::format(
      "{}: no window: {} steps of its longest history are used; expected {} at least, n_transit and twice "
      "window_margin{}; use a smaller n_transit{}{}, or leave the task out with tasks",
      task.name, longest, shape_.length + 2 * shape_.margin,
      shape_.last_fraction < 1 ? fmt::format(", in the last {} of a history", shape_.last_fraction) : "",
      thinned_.empty() ? "" : ", a smaller episode_stride",
      shape_.steps == kAllThereAre ? "" : ", more train_source_timesteps"));
}

ColumnWindow ColumnWindowIndex::window(int64_t sample) const {
  const auto tasks = static_cast<int64_t>(chosen_.size());
  const int64_t all = shape_.weights == TaskWeights::kTasks ? most_of_a_task_ * tasks : windows();
  if (size_ < all) sample = spread(sample, size_, all);
  if (shape_.weights == TaskWeights::kTasks) {
    const auto chosen = static_cast<size_t>(sample / most_of_a_task_);
    const int64_t first = first_window_[chosen_[chosen].first_history];
    const int64_t end =
        chosen + 1 < chosen_.size() ? first_window_[chosen_[chosen + 1].first_history] : windows();
    sample = first + spread(sample % most_of_a_task_, most_of_a_task_, end - first);
  }
  const auto history =
      static_cast<size_t>(std::ranges::upper_bound(first_window_, sample) - first_window_.begin()) - 1;
  const ChosenTask& task =
      *std::prev(std::ranges::upper_bound(chosen_, history, {}, &ChosenTask::first_history));
  ColumnWindow window{task.task, history - task.first_history, 0};
  const int64_t steps = steps_of(window.task, window.history);
  const int64_t skipped = first_on_grid(thinned_.empty() ? KeptSteps(steps) : thinned_[history], steps);
  window.start = shape_.margin + (skipped + sample - first_window_[history]) * shape_.stride;
  return window;
}

}  // namespace adtrain
