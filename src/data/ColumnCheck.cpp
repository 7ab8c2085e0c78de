#include "data/ColumnCheck.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace adtrain {
namespace {

/// The first row that holds what the space does not have, if any.
std::optional<int64_t> first_outside(const Column& column, const Space& space) {
  if (space.kind == Space::Kind::kBox) return column.first_not_finite();
  const auto same = [](const std::vector<int64_t>& numbers) {
    return std::ranges::adjacent_find(numbers, std::not_equal_to<>()) == numbers.end();
  };
  const bool plain = column.type.type == ElementType::kUint8 && space.start.front() == 0 &&
                     same(space.start) && same(space.values);
  if (plain && (column.bytes.empty() || *std::ranges::max_element(column.bytes) < space.values.front()))
    return std::nullopt;
  const auto elements = static_cast<int64_t>(space.values.size());
  const auto rows = static_cast<int64_t>(column.bytes.size() / column.type.row_bytes());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < elements; ++i) {
      const auto at = static_cast<size_t>(i);
      const double value = column.number(row, i) - static_cast<double>(space.start[at]);
      if (value < 0 || value >= static_cast<double>(space.values[at])) return row;
    }
  }
  return std::nullopt;
}

/// For messages: the numbers of a row.
std::string text_of_row(const Column& column, int64_t row) {
  constexpr int64_t kShown = 8;
  const auto elements = static_cast<int64_t>(column.type.row_bytes() / size_of(column.type.type));
  std::vector<double> numbers;
  for (int64_t i = 0; i < std::min(kShown, elements); ++i) numbers.push_back(column.number(row, i));
  return fmt::format("{}{}", fmt::join(numbers, ", "), elements > kShown ? ", …" : "");
}

}  // namespace

std::string ColumnCheck::wrong(const TaskSpaces& spaces, size_t task, size_t history, int64_t first,
                               const HistoryWindow& steps) const {
  const auto complaint = [&](const Column& column, const std::optional<int64_t>& row,
                             const std::string& expected) {
    if (!row) return std::string();
    return fmt::format(
        "{}: {}, history {}, step {}: found {} among the {}; expected {}: mend the "
        "data, or leave the task out with tasks",
        name_, source_->tasks()[task].name, history, first + *row, text_of_row(column, *row),
        name_of(column.type.kind), expected);
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
