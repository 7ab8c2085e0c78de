#include "base/NumberRanges.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/Text.h"
#include "base/Words.h"

namespace adtrain {
namespace {

std::optional<int64_t> number_in(std::string_view written) {
  constexpr size_t kMostDigits = 12;
  const std::string text = trimmed(written);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && text.size() <= kMostDigits && text.front() != '-' ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<NumberRange> NumberRange::parse(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = number_in(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : number_in(text.substr(dash + 1));
  if (!first || !last) return std::nullopt;
  return NumberRange{*first, *last};
}

NumberRanges::NumberRanges(std::vector<NumberRange> ranges) : ranges_(std::move(ranges)) {
  std::ranges::sort(ranges_, {}, &NumberRange::first);
  std::vector<NumberRange> joined;
  for (const NumberRange& range : ranges_) {
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  ranges_ = std::move(joined);
}

NumberRanges NumberRanges::of(const std::vector<int64_t>& numbers) {
  std::vector<NumberRange> ranges;
  for (const int64_t number : numbers) ranges.push_back({number, number});
  return NumberRanges(std::move(ranges));
}

NumberRanges NumberRanges::below(int64_t count) {
  return count > 0 ? NumberRanges({{0, count - 1}}) : NumberRanges();
}

std::optional<NumberRanges> NumberRanges::parse(std::string_view text) {
  std::vector<NumberRange> ranges;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const auto range = NumberRange::parse(text.substr(begin, comma - begin));
    if (!range || range->last < range->first) return std::nullopt;
    ranges.push_back(*range);
    begin = comma + 1;
  }
  return NumberRanges(std::move(ranges));
}

int64_t NumberRanges::count() const {
  int64_t count = 0;
  for (const NumberRange& range : ranges_) count += range.last - range.first + 1;
  return count;
}

bool NumberRanges::contains(int64_t number) const {
  const auto next = std::ranges::upper_bound(ranges_, number, {}, &NumberRange::first);
  return next != ranges_.begin() && number <= std::prev(next)->last;
}

NumberRanges NumberRanges::without(const NumberRanges& others) const {
  std::vector<NumberRange> left;
  auto other = others.ranges_.begin();
  for (NumberRange range : ranges_) {
    while (other != others.ranges_.end() && other->last < range.first) ++other;
    for (auto cut = other; cut != others.ranges_.end() && cut->first <= range.last; ++cut) {
      if (range.first < cut->first) left.push_back({range.first, cut->first - 1});
      range.first = cut->last + 1;
    }
    if (range.first <= range.last) left.push_back(range);
  }
  return NumberRanges(std::move(left));
}

std::vector<int64_t> NumberRanges::numbers() const {
  std::vector<int64_t> numbers;
  numbers.reserve(static_cast<size_t>(count()));
  for (const NumberRange& range : ranges_) {
    for (int64_t number = range.first; number <= range.last; ++number) numbers.push_back(number);
  }
  return numbers;
}

std::string NumberRanges::text() const {
  std::vector<std::string> texts;
  for (const auto& [first, last] : ranges_) {
    texts.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  }
  return join(texts, ",");
}

}  // namespace adtrain
