#include "data/formats/ColumnInSpace.h"

#include <algorithm>
#include <functional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/Error.h"

namespace adtrain {

void expect_stored_as(const Space& space, const ColumnType& column, const std::string& origin) {
  const bool whole = space.kind != Space::Kind::kBox;
  if (space.shape == column.row && (!whole || is_whole(column.type))) return;
  throw DataError(
      fmt::format("{}: {} are {} ({}) in each step, and the space of the tasks is {}; expected a "
                  "space of that shape{}",
                  origin, name_of(column.kind), name_of(column.type), fmt::join(column.row, ", "),
                  space.text(), whole ? ", of whole numbers" : ""));
}

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

std::string text_of_row(const Column& column, int64_t row) {
  constexpr int64_t kShown = 8;
  const auto elements = static_cast<int64_t>(column.type.row_bytes() / size_of(column.type.type));
  std::vector<double> numbers;
  for (int64_t i = 0; i < std::min(kShown, elements); ++i) numbers.push_back(column.number(row, i));
  return fmt::format("{}{}", fmt::join(numbers, ", "), elements > kShown ? ", …" : "");
}

}  // namespace adtrain
