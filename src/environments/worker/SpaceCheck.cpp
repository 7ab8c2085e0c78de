#include "environments/worker/SpaceCheck.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "environments/worker/TypedNumbers.h"

namespace adtrain {
namespace {

/// "[1, 4]", of the element with this number in C order; "" where there is but one.
std::string place_text(size_t element, const std::vector<int64_t>& shape) {
  std::vector<size_t> indices(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    indices[axis] = element % static_cast<size_t>(shape[axis]);
    element /= static_cast<size_t>(shape[axis]);
  }
  return indices.empty() ? "" : fmt::format(" at [{}]", fmt::join(indices, ", "));
}

template <class Number>
bool is_between(Number number, int64_t first, int64_t last) {
  if constexpr (std::is_integral_v<Number>) {
    return std::cmp_greater_equal(number, first) && std::cmp_less_equal(number, last);
  } else {
    const auto value = static_cast<double>(number);
    return value >= static_cast<double>(first) && value <= static_cast<double>(last);
  }
}

template <class Number>
std::string text_of(Number number) {
  if constexpr (std::is_integral_v<Number>) {
    return fmt::format("{}", static_cast<int64_t>(number));
  } else {
    return fmt::format("{}", static_cast<double>(number));
  }
}

bool is_finite_bound(double bound) {
  return std::isfinite(bound);
}

}  // namespace

SpaceCheck::SpaceCheck(Space space)
    : space_(std::move(space)),
      size_(static_cast<size_t>(space_.size())),
      is_bounded_(std::ranges::any_of(space_.low, is_finite_bound) ||
                  std::ranges::any_of(space_.high, is_finite_bound)) {}

std::optional<SpaceCheck::Objection> SpaceCheck::objection(const std::byte* row) const {
  const bool is_box = space_.kind == Space::Kind::kBox;
  if (is_box && is_whole(space_.type)) return std::nullopt;
  return with_type(space_.type, [&]<class Number>(Number*) -> std::optional<Objection> {
    for (size_t i = 0; i < size_; ++i) {
      const auto number = number_at<Number>(row, i);
      if (is_box) {
        const auto value = static_cast<double>(number);
        if (!std::isfinite(value)) return fmt::format("{}{}", value, place_text(i, space_.shape));
        continue;
      }
      const int64_t first = space_.start[i], last = first + space_.values[i] - 1;
      if (!is_between(number, first, last)) {
        return fmt::format("{}{}, which is none of {} to {}", text_of(number), place_text(i, space_.shape),
                           first, last);
      }
    }
    return std::nullopt;
  });
}

bool SpaceCheck::is_within_bounds(const std::byte* row) const {
  if (!is_bounded_) return true;
  return with_type(space_.type, [&]<class Number>(Number*) {
    for (size_t i = 0; i < size_; ++i) {
      const auto value = static_cast<double>(number_at<Number>(row, i));
      if (!(value >= space_.low[i] && value <= space_.high[i])) return false;
    }
    return true;
  });
}

}  // namespace adtrain
