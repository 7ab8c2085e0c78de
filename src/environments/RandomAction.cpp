#include "environments/RandomAction.h"

#include <cmath>

namespace adtrain {

namespace {

/// Of a box of real numbers.
double random_number(double low, double high, RandomStream& random) {
  const bool has_low = std::isfinite(low), has_high = std::isfinite(high);
  if (has_low && has_high) return low + (high - low) * static_cast<double>(random.uniform());
  if (!has_low && !has_high) return random.normal();
  const double distance = -std::log1p(-static_cast<double>(random.uniform()));
  return has_low ? low + distance : high - distance;
}

}  // namespace

double random_element(const Space& action, size_t element, RandomStream& random) {
  if (action.kind != Space::Kind::kBox) {
    const auto values = static_cast<uint32_t>(action.values[element]);
    return static_cast<double>(action.start[element] + random.below(values));
  }
  const double low = action.low[element], high = action.high[element];
  if (!is_whole(action.type)) return random_number(low, high, random);
  // The largest whole number is as likely as the others.
  return std::floor(random_number(low, std::isfinite(high) ? high + 1 : high, random));
}

}  // namespace adtrain
