#include "data/HeldHistories.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/InParallel.h"
#include "data/formats/HistoryArrays.h"

namespace adtrain {
namespace {

constexpr int64_t kStepsAtOnce = 65536;
/// Columns begin at multiples of it, as GPUs copy and tensors are laid out.
constexpr size_t kAlignment = 64;

}  // namespace

HeldHistories::HeldHistories(const HistorySource& source, const std::vector<Part>& parts,
                             const ColumnKinds& kinds)
    : source_(source), kinds_(kinds), groups_(source.groups().size()), of_task_(source.tasks().size()) {
  for (const Part& part : parts) {
    const TaskHistories& task = source.tasks().at(part.task);
    Group& group = groups_[task.group];
    const size_t count = std::min(part.histories, task.steps.size());
    of_task_[part.task] = {histories_.size(), count};
    for (size_t history = 0; history < count; ++history) {
      const int64_t steps = std::min(part.steps, task.steps[history]);
      histories_.push_back({part.task, history, {task.group, group.steps, steps}});
      group.steps += steps;
    }
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& group = groups_[i];
    for (const ColumnType& column : source.groups()[i].columns) {
      if (!kinds.contains(column.kind)) {
        group.lacking.add(column.kind);
        continue;
      }
      group.columns.push_back(column);
      group.at.push_back(bytes_);
      const size_t bytes = static_cast<size_t>(group.steps) * column.row_bytes();
      bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
  }
}

std::string HeldHistories::load(const SharedBytes& memory, size_t threads, const Check& check,
                                const std::function<void()>& on_history) {
  memory_ = memory;
  std::vector<size_t> mine;
  for (size_t i = 0; i < histories_.size(); ++i) {
    if (memory.fills(i)) mine.push_back(i);
  }
  std::mutex mutex;
  size_t wrong_at = histories_.size();
  std::string wrong;
  in_parallel(mine.size(), threads, [&](size_t index) {
    thread_local HistoryWindow window;
    const auto& [task, history, place] = histories_[mine[index]];
    const Group& group = groups_[place.group];
    std::string found;
    for (int64_t first = 0; first < place.steps; first += kStepsAtOnce) {
      const int64_t count = std::min(kStepsAtOnce, place.steps - first);
      source_.read(task, history, first, count, kinds_, window);
      for (size_t column = 0; column < group.columns.size(); ++column) {
        const std::vector<uint8_t>& bytes = window.columns[column].bytes;
        std::memcpy(place_of_rows(group, column, place.first_step + first), bytes.data(), bytes.size());
      }
      if (found.empty()) found = check(task, history, first, window);
    }
    on_history();
    const std::lock_guard lock(mutex);
    if (found.empty() || mine[index] >= wrong_at) return;
    wrong_at = mine[index];
    wrong = found;
  });
  source_.drop_cached();  // it has been read once, and is not asked for again
  return wrong;
}

std::optional<HeldHistories::Place> HeldHistories::place_of(size_t task, size_t history) const {
  const OfTask& held = of_task_.at(task);
  if (history >= held.count) return std::nullopt;
  return histories_[held.first + history].place;
}

const uint8_t* HeldHistories::column(size_t group, ColumnKind kind) const {
  const Group& of_group = groups_.at(group);
  const auto found = std::ranges::find(of_group.columns, kind, &ColumnType::kind);
  if (found == of_group.columns.end()) return nullptr;
  return place_of_rows(of_group, static_cast<size_t>(found - of_group.columns.begin()), 0);
}

void HeldHistories::read_columns(size_t task, size_t history, int64_t first, int64_t count,
                                 const ColumnKinds& kinds, HistoryWindow& window) const {
  const std::optional<Place> place = place_of(task, history);
  const Group& group = groups_[source_.tasks()[task].group];
  if (!place || first + count > place->steps || group.lacking.shares(kinds)) {
    source_.read(task, history, first, count, kinds, window);
    return;
  }
  prepare(window, group.columns, kinds, count);
  size_t next = 0;
  for (size_t column = 0; column < group.columns.size(); ++column) {
    if (!kinds.contains(group.columns[column].kind)) continue;
    std::vector<uint8_t>& bytes = window.columns[next++].bytes;
    std::memcpy(bytes.data(), place_of_rows(group, column, place->first_step + first), bytes.size());
  }
}

}  // namespace adtrain
