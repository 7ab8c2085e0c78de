#include "data/ColumnCheck.h"

#include <optional>

#include <fmt/format.h>

#include "data/formats/ColumnInSpace.h"

namespace adtrain {

std::string ColumnCheck::wrong(const TaskSpaces& spaces, size_t task, size_t history, int64_t first,
                               const HistoryWindow& steps) const {
  const auto complaint = [&](const Column& column, const std::optional<int64_t>& row,
                             const std::string& expected) {
    if (!row) return std::string();
    const std::string path = source_->path_of(task);
    return fmt::format(
        "{}: {}, history {}, step {}: found {} among the {}; expected {}: mend the data, or {}",
        path.empty() ? name_ : path, source_->tasks()[task].name, history, first + *row,
        text_of_row(column, *row), name_of(column.type.kind), expected, kLeaveTaskOut);
  };
  const Column& states = *steps.find(ColumnKind::kObservations);
  const Column& actions = *steps.find(ColumnKind::kActions);
  const Column& rewards = *steps.find(ColumnKind::kRewards);
  std::string found = complaint(states, first_outside(states, spaces.observation), spaces.observation.text());
  if (found.empty()) found = complaint(actions, first_outside(actions, spaces.action), spaces.action.text());
  if (found.empty()) found = complaint(rewards, rewards.first_not_finite(), "a finite number");
  return found;
}

}  // namespace adtrain
