#include "data/ColumnWindowIndex.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "base/Words.h"
#include "config/Scalar.h"
#include "data/ColumnCheck.h"

namespace adtrain {

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
                                     const ColumnWindowShape& shape, const ComputeAll& compute,
                                     const std::vector<size_t>& groups)
    : source_(source), shape_(shape), chosen_(tasks) {
  std::map<size_t, size_t> group_of;
  for (size_t i = 0; i < groups.size(); ++i) group_of[tasks[i]] = groups[i];
  std::ranges::sort(chosen_);
  struct Place {
    size_t task, history;
    EpisodeChoice episodes;
  };
  std::vector<Place> places;
  bool thinned = false;
  for (const size_t task : chosen_) {
    first_history_.push_back(std::ssize(places));
    const auto there = static_cast<int64_t>(source.tasks()[task].steps.size());
    const int64_t used = shape.streams == kAllThereAre ? there : std::min(there, shape.streams);
    EpisodeChoice episodes = episodes_of(source.tasks()[task]);
    episodes.stride *= shape.episode_stride;
    thinned = thinned || !episodes.all();
    for (int64_t history = 0; history < used; ++history)
      places.push_back({task, static_cast<size_t>(history), episodes});
  }
  first_history_.push_back(std::ssize(places));
  if (thinned) {
    const std::vector<std::string> kept = compute(places.size(), [&](size_t i) {
      const auto& [task, history, episodes] = places[i];
      const int64_t steps = steps_of(task, history);
      return (episodes.all() ? KeptSteps(steps)
                             : KeptSteps::of_episodes(episodes, source, task, history, steps))
          .to_bytes();
    });
    for (const std::string& bytes : kept) thinned_.push_back(KeptSteps::from_bytes(bytes));
  }
  first_window_ = {0};
  std::vector<ShortHistory> short_ones;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& [task, history, episodes] = places[i];
    const KeptSteps kept = kept_of(i, task, history);
    first_window_.push_back(first_window_.back() + windows_in(kept, steps_of(task, history)));
    if (is_short(kept)) short_ones.push_back({static_cast<int64_t>(i), usable(kept), group_of[task]});
  }
  packed_ = PackedRows(std::move(short_ones), shape.length, shape.packing_seed);
  for (size_t chosen = 0; chosen < chosen_.size(); ++chosen)
    most_of_a_task_ = std::max(most_of_a_task_, windows_of_task(chosen));
  size_ = shape.weights == TaskWeights::kTasks ? most_of_a_task_ * static_cast<int64_t>(chosen_.size())
                                               : windows() + packed_.size();
  if (shape.most_samples > 0) size_ = std::min(size_, shape.most_samples);
}

/// Of a history, those that may be used at all.
int64_t ColumnWindowIndex::steps_of(size_t task, size_t history) const {
  const int64_t there = source_.tasks()[task].steps[history];
  return shape_.steps == kAllThereAre ? there : std::min(there, shape_.steps);
}

KeptSteps ColumnWindowIndex::kept_of(size_t index, size_t task, size_t history) const {
  return thinned_.empty() ? KeptSteps(steps_of(task, history)) : thinned_.at(index);
}

KeptSteps ColumnWindowIndex::kept(size_t task, size_t history) const {
  if (thinned_.empty()) return KeptSteps(steps_of(task, history));
  const auto chosen = static_cast<size_t>(std::ranges::lower_bound(chosen_, task) - chosen_.begin());
  return thinned_.at(static_cast<size_t>(first_history_.at(chosen)) + history);
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
  const int64_t starts = usable(kept) - shape_.length + 1;
  if (starts <= 0) return 0;
  return std::max<int64_t>(0, (starts + shape_.stride - 1) / shape_.stride - first_on_grid(kept, steps));
}

int64_t ColumnWindowIndex::windows_of_task(size_t chosen) const {
  const auto first = static_cast<size_t>(first_history_[chosen]);
  const auto end = static_cast<size_t>(first_history_[chosen + 1]);
  const int64_t windows = first_window_[end] - first_window_[first];
  if (windows > 0) return windows;
  const TaskHistories& task = source_.tasks()[chosen_[chosen]];
  int64_t longest = 0;
  for (size_t history = 0; history < end - first; ++history) {
    const KeptSteps steps = kept(chosen_[chosen], history);
    if (is_short(steps)) return windows;
    longest = std::max(longest, steps.size());
  }
  const std::string expected =
      shape_.packed
          ? fmt::format("{} at least, one more than twice window_margin", 1 + 2 * shape_.margin)
          : fmt::format("{} at least, n_transit and twice window_margin{}", shape_.length + 2 * shape_.margin,
                        shape_.last_fraction < 1
                            ? fmt::format(", in the last {} of a history", shape_.last_fraction)
                            : "");
  throw DataError(fmt::format(
      "{}: no window: {} steps of its longest history are used; expected {}; use {}{}{}, or {}{}", task.name,
      longest, expected,
      shape_.packed              ? "a smaller window_margin"
      : shape_.last_fraction < 1 ? "a smaller n_transit"
                                 : "a smaller n_transit, in training at all positions sequence_packing: true",
      thinned_.empty() ? "" : ", a smaller episode_stride",
      shape_.steps == kAllThereAre ? "" : ", more train_source_timesteps", kLeaveTaskOut,
      source_.doubt(chosen_[chosen])));
}

WindowFinder ColumnWindowIndex::finder() const {
  return {.first_window = first_window_.data(),
          .first_history = first_history_.data(),
          .histories = histories(),
          .tasks = std::ssize(chosen_),
          .most_of_a_task = most_of_a_task_,
          .size = size_,
          .tasks_alike = shape_.weights == TaskWeights::kTasks,
          .packed_rows = packed_.size()};
}

ColumnWindowIndex::History ColumnWindowIndex::history(size_t index) const {
  const auto number = static_cast<int64_t>(index);
  const auto chosen = static_cast<size_t>(last_not_above(first_history_.data(), std::ssize(chosen_), number));
  const size_t task = chosen_[chosen], history = index - static_cast<size_t>(first_history_[chosen]);
  const KeptSteps kept = kept_of(index, task, history);
  return {task, history, shape_.margin + first_on_grid(kept, steps_of(task, history)) * shape_.stride, kept};
}

ColumnWindow ColumnWindowIndex::window(int64_t sample) const {
  const WindowFinder::Place place = finder().find(sample);
  const History found = history(static_cast<size_t>(place.history));
  return {found.task, found.history, found.first_start + place.window * shape_.stride};
}

std::vector<RowPart> ColumnWindowIndex::row(int64_t sample) const {
  const WindowFinder::Place place = finder().find(sample);
  if (place.history < histories()) return {{window(sample), 0, shape_.length}};
  std::vector<RowPart> parts;
  for (const PackedSegment& segment : packed_.row(place.window)) {
    const History found = history(static_cast<size_t>(segment.history));
    parts.push_back({{found.task, found.history, found.first_start}, segment.column, segment.length});
  }
  return parts;
}

int64_t ColumnWindowIndex::filled(int64_t sample) const {
  const WindowFinder::Place place = finder().find(sample);
  return place.history < histories() ? shape_.length : packed_.filled(place.window);
}

double ColumnWindowIndex::fill_rate() const {
  const int64_t all = (windows() + packed_.size()) * shape_.length;
  return static_cast<double>(windows() * shape_.length + packed_.transitions()) / static_cast<double>(all);
}

std::string ColumnWindowIndex::packing_text() const {
  return fmt::format(
      "{} rows of {} transitions, {:.1f}% of which are no padding: {} windows, and {} rows of {} packed "
      "histories",
      grouped(windows() + packed_.size()), grouped(shape_.length), 100 * fill_rate(), grouped(windows()),
      grouped(packed_.size()), grouped(std::ssize(packed_.segments())));
}

}  // namespace adtrain
