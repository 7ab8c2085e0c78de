#include "data/ColumnWindows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "data/TensorType.h"
#include "data/formats/ColumnInSpace.h"
#include "data/formats/Episodes.h"

namespace adtrain {
namespace {

/// Copies numbers of type From to a tensor's To.
template <class From, class To>
void widen(const uint8_t* from, size_t count, void* to) {
  auto* values = static_cast<To*>(to);
  for (size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    values[i] = static_cast<To>(value);
  }
}

/// Copies rows of a column to where a tensor of tensor_type has them.
void copy_rows(const Column& column, int64_t first, int64_t rows, void* to) {
  const uint8_t* from = column.bytes.data() + static_cast<size_t>(first) * column.type.row_bytes();
  const size_t bytes = static_cast<size_t>(rows) * column.type.row_bytes();
  if (column.type.type == ElementType::kUint16) return widen<uint16_t, int32_t>(from, bytes / 2, to);
  if (column.type.type == ElementType::kUint32) return widen<uint32_t, int64_t>(from, bytes / 4, to);
  std::memcpy(to, from, bytes);
}

}  // namespace

/// Fills the rows of one group in a batch.
class ColumnWindows::Rows {
 public:
  Rows(const ColumnWindows& windows, size_t group, int64_t rows)
      : windows_(windows),
        spaces_(windows.origin_.spaces[group]),
        length_(windows.index_.shape().length),
        states_(windows.groups_.at(group).states),
        actions_(windows.groups_.at(group).actions) {
    batch_.group = static_cast<int64_t>(group);
    // Of what follows, every number is written; a step before a row's first is not always there.
    batch_.states = empty_rows(states_, {rows, length_});
    batch_.actions = empty_rows(actions_, {rows, length_});
    batch_.rewards = at::empty({rows, length_}, at::kFloat);
    batch_.before_action = empty_rows(actions_, {rows}).zero_();
    batch_.before_reward = at::zeros({rows}, at::kFloat);
    batch_.begins = at::zeros({rows, length_}, at::kByte);
    if (windows.groups_.at(group).normalised) {
      const ColumnType statistics = {states_.kind, ElementType::kFloat32, states_.row};
      batch_.state_mean = empty_rows(statistics, {rows});
      batch_.state_deviation = empty_rows(statistics, {rows});
    }
  }

  void put(int64_t row, const ColumnWindow& window) {
    row_ = row;
    window_ = window;
    task_ = &windows_.tasks_.at(window.task);
    const KeptSteps kept = windows_.index_.kept(window.task, window.history);
    for (int64_t step = std::max<int64_t>(0, window.start - 1), end = window.start + length_; step < end;) {
      const KeptSteps::Place place = kept.place_of(step);
      const int64_t count = std::min(end, place.end) - step;
      const int64_t first = place.run.first + step - place.run.kept;
      put_piece(step - window.start, first, count);
      if (kept.thinned() && step == place.run.kept && step >= window.start) begin(step - window.start);
      step += count;
    }
    if (!batch_.state_mean.defined()) return;
    std::ranges::copy(task_->mean, batch_.state_mean[row].data_ptr<float>());
    std::ranges::copy(task_->deviation, batch_.state_deviation[row].data_ptr<float>());
  }

  Batch take() { return std::move(batch_); }

 private:
  /// Reads `count` steps from step `first` of the history on, and puts them into the row from `column` on:
  /// −1 is the step before the row.
  void put_piece(int64_t column, int64_t first, int64_t count) {
    thread_local HistoryWindow read;
    windows_.origin_.source.read(window_.task, window_.history, first, count, kinds(), read);
    const Column& states = *read.find(ColumnKind::kObservations);
    const Column& actions = *read.find(ColumnKind::kActions);
    const Column& rewards = *read.find(ColumnKind::kRewards);
    const std::string wrong = windows_.check_.wrong(spaces_, window_.task, window_.history, first, read);
    if (!wrong.empty()) throw DataError(wrong);
    const int64_t skipped = column < 0 ? 1 : 0;
    if (skipped == 1) {
      copy_rows(actions, 0, 1, at_row(batch_.before_action, row_));
      batch_.before_reward.data_ptr<float>()[row_] = reward(rewards, 0);
    }
    const int64_t cell = row_ * length_ + column + skipped;
    copy_rows(states, skipped, count - skipped, at_cell(batch_.states, cell, states_));
    copy_rows(actions, skipped, count - skipped, at_cell(batch_.actions, cell, actions_));
    for (int64_t i = skipped; i < count; ++i)
      batch_.rewards.data_ptr<float>()[row_ * length_ + column + i] = reward(rewards, i);
    if (first == 0 && column >= 0) begin(column);
    mark_episodes(read, column);
  }

  void mark_episodes(const HistoryWindow& read, int64_t column) {
    const EpisodeEnds ends(read);
    for (int64_t step = 0; step < read.steps; ++step) {
      if (ends.ends(step) && step + 1 < read.steps) begin(column + step + 1);
      if (ends.begins(step) && column + step >= 0) begin(column + step);
    }
  }

  void begin(int64_t column) { batch_.begins.data_ptr<uint8_t>()[row_ * length_ + column] = 1; }

  float reward(const Column& rewards, int64_t step) const {
    return static_cast<float>(rewards.number(step)) * task_->reward_scale;
  }

  static void* at_row(const at::Tensor& tensor, int64_t row) {
    return static_cast<uint8_t*>(tensor.mutable_data_ptr()) + row * tensor.stride(0) * tensor.element_size();
  }
  static void* at_cell(const at::Tensor& tensor, int64_t cell, const ColumnType& type) {
    int64_t elements = 1;
    for (const int64_t extent : type.row) elements *= extent;
    return static_cast<uint8_t*>(tensor.mutable_data_ptr()) + cell * elements * tensor.element_size();
  }

  const ColumnWindows& windows_;
  const TaskSpaces& spaces_;
  int64_t length_;
  const ColumnType &states_, &actions_;
  Batch batch_;
  int64_t row_ = 0;
  ColumnWindow window_{};
  const Task* task_ = nullptr;
};

ColumnWindows::ColumnWindows(Origin origin, const ColumnWindowShape& shape,
                             const std::vector<TaskScale>& scales, const ComputeAll& compute)
    : origin_(std::move(origin)),
      check_(origin_.source, origin_.name),
      index_(origin_.source, origin_.tasks, shape, compute) {
  for (size_t i = 0; i < origin_.tasks.size(); ++i)
    add_task(origin_.tasks[i], origin_.groups.empty() ? 0 : origin_.groups.at(i), scales.at(i));
}

void ColumnWindows::add_task(size_t task, size_t group, const TaskScale& scale) {
  tasks_[task] = {group,
                  static_cast<float>(scale.reward_scale),
                  {scale.mean.begin(), scale.mean.end()},
                  {scale.deviation.begin(), scale.deviation.end()}};
  const TaskSpaces& spaces = origin_.spaces.at(group);
  const TaskHistories& histories = origin_.source.tasks()[task];
  const SpaceGroup& stored = origin_.source.groups()[histories.group];
  const Group found = {*stored.find(ColumnKind::kObservations), *stored.find(ColumnKind::kActions),
                       !scale.mean.empty()};
  expect_stored_as(spaces.observation, found.states, origin_.name);
  expect_stored_as(spaces.action, found.actions, origin_.name);
  const Group& first = groups_.try_emplace(group, found).first->second;
  if (first.states == found.states && first.actions == found.actions && first.normalised == found.normalised)
    return;
  throw DataError(
      fmt::format("{}: the rows of {} are stored as {} and {}; expected {} and {}, as other tasks of "
                  "its group have them",
                  origin_.name, histories.name, name_of(found.states.type), name_of(found.actions.type),
                  name_of(first.states.type), name_of(first.actions.type)));
}

std::string ColumnWindows::description() const {
  const std::string groups =
      groups_.size() > 1 ? fmt::format(" in {} groups of equal spaces", groups_.size()) : "";
  return fmt::format("{} windows of {} histories of {} tasks{}, {}", grouped(samples()),
                     grouped(index_.histories()), grouped(static_cast<int64_t>(origin_.tasks.size())), groups,
                     origin_.held == nullptr ? "read in place" : "held in memory");
}

const ColumnKinds& ColumnWindows::kinds() {
  static const ColumnKinds kinds = {
      ColumnKind::kObservations, ColumnKind::kActions,     ColumnKind::kRewards,    ColumnKind::kEnds,
      ColumnKind::kTerminations, ColumnKind::kTruncations, ColumnKind::kStepNumbers};
  return kinds;
}

std::string ColumnWindows::why_not_on_gpu(const HistorySource& source, const std::vector<size_t>& tasks,
                                          size_t groups) {
  if (groups > 1) return "they are of several groups of spaces";
  const auto stored = [&](size_t task) { return source.tasks()[task].group; };
  const bool alike =
      std::ranges::all_of(tasks, [&](size_t task) { return stored(task) == stored(tasks.front()); });
  return alike ? "" : "the columns of their tasks are not all stored in the same way";
}

Batch ColumnWindows::assemble(std::span<const int64_t> samples) const {
  struct OfGroup {
    std::vector<ColumnWindow> windows;
    std::vector<int64_t> places;  ///< among the samples
  };
  std::map<size_t, OfGroup> groups;
  for (size_t place = 0; place < samples.size(); ++place) {
    const ColumnWindow window = index_.window(samples[place]);
    OfGroup& group = groups[tasks_.at(window.task).group];
    group.windows.push_back(window);
    group.places.push_back(static_cast<int64_t>(place));
  }
  if (origin_.spaces.size() == 1) return rows_of(0, groups[0].windows);
  Batch batch;
  std::vector<int64_t> places;
  for (const auto& [number, group] : groups) {
    batch.parts.push_back(rows_of(number, group.windows));
    places.insert(places.end(), group.places.begin(), group.places.end());
  }
  batch.places = at::tensor(places, at::kLong);
  return batch;
}

Batch ColumnWindows::rows_of(size_t group, std::span<const ColumnWindow> windows) const {
  Rows rows(*this, group, static_cast<int64_t>(windows.size()));
  for (size_t row = 0; row < windows.size(); ++row) rows.put(static_cast<int64_t>(row), windows[row]);
  return rows.take();
}

}  // namespace adtrain
