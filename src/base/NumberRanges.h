#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adtrain {

/// The whole numbers from `first` to `last`, both inclusive.
struct NumberRange {
  int64_t first, last;

  /// "0-39", or "7" for that one alone; numbers have at most twelve digits, and spaces around them are
  /// allowed. Nothing where the text is anything else. A range that ends before it begins is returned as it
  /// is written.
  static std::optional<NumberRange> parse(std::string_view text);
};

/// A set of whole numbers from 0 on, written as numbers and ranges with commas between: "0-39,50".
class NumberRanges {
 public:
  NumberRanges() = default;
  /// The union of these, which may overlap. Each begins at 0 or later and ends no earlier than it begins.
  explicit NumberRanges(std::vector<NumberRange> ranges);
  static NumberRanges of(const std::vector<int64_t>& numbers);
  /// 0 … count − 1.
  static NumberRanges below(int64_t count);
  /// Nothing where the text is empty or anything else than such ranges.
  static std::optional<NumberRanges> parse(std::string_view text);

  /// Ascending; they neither overlap nor touch.
  const std::vector<NumberRange>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  int64_t count() const;
  /// Of a set that is not empty.
  int64_t smallest() const { return ranges_.front().first; }
  int64_t largest() const { return ranges_.back().last; }
  bool contains(int64_t number) const;
  /// Those that are not among the others.
  NumberRanges without(const NumberRanges& others) const;
  /// Ascending.
  std::vector<int64_t> numbers() const;
  /// "0-39,50"; "" where there are none.
  std::string text() const;

 private:
  std::vector<NumberRange> ranges_;
};

}  // namespace adtrain
