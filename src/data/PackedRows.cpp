#include "data/PackedRows.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/Random.h"

namespace adtrain {

PackedRows::PackedRows(std::vector<ShortHistory> histories, int64_t row_length, uint64_t seed) {
  const auto key = [seed](const ShortHistory& history) {
    return std::tuple(history.group, -history.length, seed_of(seed, history.history), history.history);
  };
  std::ranges::sort(histories, {}, key);
  std::vector<std::vector<PackedSegment>> rows;
  std::set<std::pair<int64_t, size_t>> open;  // the space that is left of a row, and its number
  size_t group = 0;
  for (const ShortHistory& history : histories) {
    if (std::exchange(group, history.group) != history.group) open.clear();
    auto tightest = open.lower_bound({history.length, 0});
    if (tightest == open.end()) {
      tightest = open.insert({row_length, rows.size()}).first;
      rows.emplace_back();
    }
    const auto [space, row] = *tightest;
    open.erase(tightest);
    rows[row].push_back(
        {history.history, static_cast<int32_t>(row_length - space), static_cast<int32_t>(history.length)});
    if (space > history.length) open.insert({space - history.length, row});
    transitions_ += history.length;
  }
  for (const std::vector<PackedSegment>& row : rows) {
    segments_.insert(segments_.end(), row.begin(), row.end());
    first_segment_.push_back(std::ssize(segments_));
  }
}

std::span<const PackedSegment> PackedRows::row(int64_t row) const {
  const auto place = static_cast<size_t>(row);
  const auto first = static_cast<size_t>(first_segment_.at(place));
  return std::span(segments_).subspan(first, static_cast<size_t>(first_segment_.at(place + 1)) - first);
}

}  // namespace adtrain
