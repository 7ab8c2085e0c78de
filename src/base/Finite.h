#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace adtrain {

/// Whether none of these is NaN or infinite.
inline bool all_finite(std::span<const float> numbers) {
  return std::ranges::all_of(numbers, [](float number) { return std::isfinite(number); });
}

}  // namespace adtrain
