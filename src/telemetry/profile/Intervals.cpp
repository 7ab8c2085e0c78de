#include "telemetry/profile/Intervals.h"

#include <algorithm>

namespace adtrain {

Intervals::Intervals(std::vector<Interval> any) {
  std::ranges::sort(any);
  for (const Interval& next : any) {
    if (next.second <= next.first) continue;
    if (!all_.empty() && next.first <= all_.back().second) {
      all_.back().second = std::max(all_.back().second, next.second);
    } else {
      all_.push_back(next);
    }
  }
}

int64_t Intervals::length() const {
  int64_t sum = 0;
  for (const auto& [first, second] : all_) sum += second - first;
  return sum;
}

int64_t Intervals::length_within(int64_t begin, int64_t end) const {
  int64_t sum = 0;
  auto interval = std::ranges::upper_bound(all_, begin, {}, &Interval::second);  // the first that ends later
  for (; interval != all_.end() && interval->first < end; ++interval) {
    sum += std::min(interval->second, end) - std::max(interval->first, begin);
  }
  return sum;
}

Intervals Intervals::operator|(const Intervals& other) const {
  std::vector<Interval> both = all_;
  both.insert(both.end(), other.all_.begin(), other.all_.end());
  return Intervals(std::move(both));
}

Intervals Intervals::operator&(const Intervals& other) const {
  Intervals common;
  for (auto mine = all_.begin(), its = other.all_.begin(); mine != all_.end() && its != other.all_.end();) {
    const int64_t begin = std::max(mine->first, its->first), end = std::min(mine->second, its->second);
    if (begin < end) common.all_.emplace_back(begin, end);
    (mine->second < its->second ? mine : its)++;
  }
  return common;
}

Intervals Intervals::operator-(const Intervals& other) const {
  Intervals rest;
  auto its = other.all_.begin();
  for (auto [begin, end] : all_) {
    while (its != other.all_.end() && its->second <= begin) ++its;
    for (auto cut = its; cut != other.all_.end() && cut->first < end; ++cut) {
      if (begin < cut->first) rest.all_.emplace_back(begin, cut->first);
      begin = std::max(begin, cut->second);
    }
    if (begin < end) rest.all_.emplace_back(begin, end);
  }
  return rest;
}

}  // namespace adtrain
