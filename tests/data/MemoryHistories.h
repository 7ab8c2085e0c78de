#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "data/formats/HistorySource.h"

namespace adtrain {

/// Histories of any space in memory, for tests: columns of whole histories, which tests may change.
class MemoryHistories final : public HistorySource {
 public:
  /// Of the columns' types; histories are added by `add`.
  explicit MemoryHistories(std::vector<ColumnType> columns) {
    groups_.push_back({"", std::nullopt, std::nullopt, {}, std::move(columns)});
  }

  /// A history of the task at place `task`, which is made where it is not there, filled with zeros.
  HistoryWindow& add(size_t task, int64_t steps) {
    while (tasks_.size() <= task) {
      const auto number = static_cast<int64_t>(tasks_.size());
      tasks_.push_back({"task " + std::to_string(number), number, 0, {}, {}});
      histories_.emplace_back();
    }
    tasks_[task].steps.push_back(steps);
    HistoryWindow& history = histories_[task].emplace_back();
    history.steps = steps;
    for (const ColumnType& type : groups_.front().columns)
      history.columns.push_back({type, std::vector<uint8_t>(static_cast<size_t>(steps) * type.row_bytes())});
    return history;
  }

  /// What the data say of a task that is there.
  TaskHistories& task(size_t task) { return tasks_.at(task); }

  HistoryFormat format() const override { return HistoryFormat::kAdtrain; }
  std::string description() const override { return "in memory"; }
  const std::vector<SpaceGroup>& groups() const override { return groups_; }
  const std::vector<TaskHistories>& tasks() const override { return tasks_; }
  size_t cached_bytes() const override { return 0; }

 protected:
  void read_columns(size_t task, size_t history, int64_t first, int64_t count, const ColumnKinds& kinds,
                    HistoryWindow& window) const override {
    window.steps = count;
    window.columns.clear();
    for (const Column& column : histories_[task][history].columns) {
      if (!kinds.contains(column.type.kind)) continue;
      const auto begin = column.bytes.begin() + first * static_cast<std::ptrdiff_t>(column.type.row_bytes());
      window.columns.push_back(
          {column.type, {begin, begin + count * static_cast<std::ptrdiff_t>(column.type.row_bytes())}});
    }
  }

 private:
  std::vector<SpaceGroup> groups_;
  std::vector<TaskHistories> tasks_;
  std::vector<std::vector<HistoryWindow>> histories_;
};

/// Sets number `step` of a column of single numbers.
template <class Number>
void set_number(HistoryWindow& history, ColumnKind kind, int64_t step, Number value) {
  for (Column& column : history.columns) {
    if (column.type.kind == kind)
      std::memcpy(column.bytes.data() + static_cast<size_t>(step) * sizeof value, &value, sizeof value);
  }
}

}  // namespace adtrain
