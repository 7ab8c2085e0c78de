#pragma once

#include <cstdint>
#include <string>

namespace adtrain {

/// Consecutive numbers, first … end − 1.
struct NumberSpan {
  int64_t first = 0, end = 0;

  int64_t size() const { return end - first; }
  /// Part `index` of `count` consecutive parts, whose sizes differ by one at most. Some are empty where there
  /// are more parts than numbers.
  NumberSpan part(int64_t index, int64_t count) const {
    return {first + size() * index / count, first + size() * (index + 1) / count};
  }
  bool operator==(const NumberSpan&) const = default;
};

/// Which part of all samples a process scores that knows nothing of the others: part `index` of `count`,
/// counted from 0. A value.
struct ScoreShard {
  int64_t index = 0, count = 1;

  /// "0/4" to "3/4". Throws ConfigError for anything else.
  static ScoreShard parse(const std::string& text);
  /// "0/4".
  std::string text() const;
  bool is_all() const { return count == 1; }
  bool operator==(const ScoreShard&) const = default;
};

}  // namespace adtrain
