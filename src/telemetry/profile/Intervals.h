#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace adtrain {

/// A set of instants: half-open intervals [first, second) that are in order and do not touch.
class Intervals {
 public:
  using Interval = std::pair<int64_t, int64_t>;

  Intervals() = default;
  /// The union of any intervals, in any order; empty and reversed ones are left out.
  explicit Intervals(std::vector<Interval> any);

  const std::vector<Interval>& all() const { return all_; }
  int64_t length() const;
  /// The length of what is in [begin, end).
  int64_t length_within(int64_t begin, int64_t end) const;

  Intervals operator|(const Intervals& other) const;
  Intervals operator&(const Intervals& other) const;
  /// What is in this set and not in the other.
  Intervals operator-(const Intervals& other) const;

 private:
  std::vector<Interval> all_;
};

}  // namespace adtrain
