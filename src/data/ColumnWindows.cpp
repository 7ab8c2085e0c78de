#include "data/ColumnWindows.h"

#include <algorithm>
#include <cstring>
#include <iterator>
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
    const bool packed = windows.packed();
    const std::vector<int64_t> known_of =
        packed ? std::vector<int64_t>{rows, length_} : std::vector<int64_t>{rows};
    batch_.before_action = empty_rows(actions_, known_of).zero_();
    batch_.before_reward = at::zeros(known_of, at::kFloat);
    batch_.begins = at::zeros({rows, length_}, at::kByte);
    if (windows.groups_.at(group).normalised) {
      const ColumnType statistics = {states_.kind, ElementType::kFloat32, states_.row};
      batch_.state_mean = empty_rows(statistics, known_of);
      batch_.state_deviation = empty_rows(statistics, known_of);
    }
    if (!packed) return;
    batch_.segment_first = at::arange(length_, at::kInt).repeat({rows, 1});
    batch_.filled = at::empty({rows}, at::kInt);
  }

  void put(int64_t row, const std::vector<RowPart>& parts) {
    row_ = row;
    for (const RowPart& part : parts) put(part);
    if (batch_.packed()) finish_packed(parts.back().column + parts.back().length);
  }

  Batch take() { return std::move(batch_); }

 private:
  void put(const RowPart& part) {
    part_ = part;
    const ColumnWindow& window = part.window;
    task_ = &windows_.tasks_.at(window.task);
    const KeptSteps kept = windows_.index_.kept(window.task, window.history);
    for (int64_t step = std::max<int64_t>(0, window.start - 1), end = window.start + part.length;
         step < end;) {
      const KeptSteps::Place place = kept.place_of(step);
      const int64_t count = std::min(end, place.end) - step;
      const int64_t first = place.run.first + step - place.run.kept;
      put_piece(step - window.start, first, count);
      if (kept.thinned() && step == place.run.kept && step >= window.start) begin(step - window.start);
      step += count;
    }
    const auto of_part = [&](const at::Tensor& of_rows) {
      const at::Tensor of_row = of_rows[row_];
      return batch_.packed() ? of_row.narrow(0, part.column, part.length) : of_row;
    };
    if (batch_.packed()) of_part(batch_.segment_first).fill_(part.column);
    if (!batch_.state_mean.defined()) return;
    const auto statistics = [&](const std::vector<float>& values) {
      return at::tensor(values).view(states_.row);
    };
    of_part(batch_.state_mean).copy_(statistics(task_->mean));
    of_part(batch_.state_deviation).copy_(statistics(task_->deviation));
  }

  /// The first `filled` columns are.
  void finish_packed(int64_t filled) {
    batch_.filled[row_].fill_(filled);
    if (filled == length_) return;
    for (const at::Tensor* repeated :
         {&batch_.states, &batch_.actions, &batch_.state_mean, &batch_.state_deviation}) {
      if (!repeated->defined()) continue;
      const at::Tensor row = (*repeated)[row_];
      row.narrow(0, filled, length_ - filled).copy_(row[filled - 1]);
    }
    batch_.rewards[row_].narrow(0, filled, length_ - filled).zero_();
  }

  /// Reads `count` steps from step `first` of the history on, and puts them into the part from its `column`
  /// on: −1 is the step before it.
  void put_piece(int64_t column, int64_t first, int64_t count) {
    thread_local HistoryWindow read;
    const ColumnWindow& window = part_.window;
    windows_.origin_.source.read(window.task, window.history, first, count, kinds(), read);
    const Column& states = *read.find(ColumnKind::kObservations);
    const Column& actions = *read.find(ColumnKind::kActions);
    const Column& rewards = *read.find(ColumnKind::kRewards);
    const std::string wrong = windows_.check_.wrong(spaces_, window.task, window.history, first, read);
    if (!wrong.empty()) throw DataError(wrong);
    const int64_t skipped = column < 0 ? 1 : 0;
    const int64_t cell = row_ * length_ + part_.column + column;
    copy_rows(states, skipped, count - skipped, at_cell(batch_.states, cell + skipped, states_));
    copy_rows(actions, skipped, count - skipped, at_cell(batch_.actions, cell + skipped, actions_));
    for (int64_t i = skipped; i < count; ++i) batch_.rewards.data_ptr<float>()[cell + i] = reward(rewards, i);
    if (batch_.packed()) {
      put_before(actions, rewards, cell + 1, std::min(count, part_.length - column - 1));
    } else if (skipped == 1) {
      put_before(actions, rewards, row_, 1);
    }
    if (first == 0 && column >= 0) begin(column);
    mark_episodes(read, column);
  }

  /// What came before `count` steps: these first ones that were read.
  void put_before(const Column& actions, const Column& rewards, int64_t place, int64_t count) {
    copy_rows(actions, 0, count, at_cell(batch_.before_action, place, actions_));
    for (int64_t i = 0; i < count; ++i)
      batch_.before_reward.data_ptr<float>()[place + i] = reward(rewards, i);
  }

  void mark_episodes(const HistoryWindow& read, int64_t column) {
    const EpisodeEnds ends(read);
    for (int64_t step = 0; step < read.steps; ++step) {
      if (ends.ends(step) && step + 1 < read.steps) begin(column + step + 1);
      if (ends.begins(step) && column + step >= 0) begin(column + step);
    }
  }

  void begin(int64_t column) {
    batch_.begins.data_ptr<uint8_t>()[row_ * length_ + part_.column + column] = 1;
  }

  float reward(const Column& rewards, int64_t step) const {
    return static_cast<float>(rewards.number(step)) * task_->reward_scale;
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
  RowPart part_{};
  const Task* task_ = nullptr;
};

ColumnWindows::ColumnWindows(Origin origin, const ColumnWindowShape& shape,
                             const std::vector<TaskScale>& scales, const ComputeAll& compute)
    : origin_(std::move(origin)),
      check_(origin_.source, origin_.name),
      index_(origin_.source, origin_.tasks, shape, compute, origin_.groups) {
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
  const std::string rows =
      packed() ? index_.packing_text() + "; of" : counted(samples(), "window", "windows") + " of";
  return fmt::format("{} {} of {}{}, {}", rows, counted(index_.histories(), "history", "histories"),
                     counted(std::ssize(origin_.tasks), "task", "tasks"), groups,
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
    RowsParts rows;
    std::vector<int64_t> places;  ///< among the samples
  };
  std::map<size_t, OfGroup> groups;
  for (size_t place = 0; place < samples.size(); ++place) {
    std::vector<RowPart> row = index_.row(samples[place]);
    OfGroup& group = groups[tasks_.at(row.front().window.task).group];
    group.rows.push_back(std::move(row));
    group.places.push_back(static_cast<int64_t>(place));
  }
  if (origin_.spaces.size() == 1) return rows_of(0, groups[0].rows);
  Batch batch;
  std::vector<int64_t> places;
  for (const auto& [number, group] : groups) {
    batch.parts.push_back(rows_of(number, group.rows));
    places.insert(places.end(), group.places.begin(), group.places.end());
  }
  batch.places = at::tensor(places, at::kLong);
  return batch;
}

Batch ColumnWindows::rows_of(size_t group, const RowsParts& rows) const {
  Rows assembled(*this, group, std::ssize(rows));
  for (size_t row = 0; row < rows.size(); ++row) assembled.put(static_cast<int64_t>(row), rows[row]);
  return assembled.take();
}

}  // namespace adtrain
