#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "data/formats/HistorySource.h"
#include "environments/TaskSpaces.h"

namespace adtrain {

/// What a message advises where a task's histories do not serve: the key depends on the command.
inline constexpr const char* kLeaveTaskOut = "leave the task out with tasks (in adtrain score: score_tasks)";

/// Checks that observations, actions and rewards can be trained on. A value; borrows the source.
class ColumnCheck {
 public:
  /// `name`: of the file or folder, for messages.
  ColumnCheck(const HistorySource& source, std::string name) : source_(&source), name_(std::move(name)) {}

  /// Of steps of a history from step `first` on, which have these columns: says which step holds a NaN, an
  /// infinity, or a whole number that its space does not have; "" where none does.
  std::string wrong(const TaskSpaces& spaces, size_t task, size_t history, int64_t first,
                    const HistoryWindow& steps) const;

 private:
  const HistorySource* source_;
  std::string name_;
};

}  // namespace adtrain
