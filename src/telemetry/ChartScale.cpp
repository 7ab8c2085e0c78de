#include "telemetry/ChartScale.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include <fmt/format.h>

#include "base/Text.h"

namespace adtrain {
namespace {

constexpr double kLargest = 1e100;  ///< beyond it, spans and coordinates would overflow

/// As many decimals as distinguish neighbouring ticks, with thousands grouped.
std::string tick_label(double value, double step) {
  if (std::abs(value) >= 1e9 || step < 1e-6) return fmt::format("{:g}", value);
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  if (decimals > 0) return fmt::format("{:.{}f}", value, decimals);
  return grouped(std::llround(value));
}

}  // namespace

bool ChartScale::holds(double value) const {
  return std::abs(value) <= kLargest && (kind_ == Kind::kLinear || value >= 1 / kLargest);
}

void ChartScale::include(double value) {
  if (!holds(value)) return;
  low_ = empty_ ? value : std::min(low_, value);
  high_ = empty_ ? value : std::max(high_, value);
  empty_ = false;
}

void ChartScale::settle(double margin) {
  if (empty_) {
    low_ = kind_ == Kind::kLinear ? 0 : 0.1;
    high_ = 1;
    return;
  }
  const double size = std::max(std::abs(low_), std::abs(high_));
  if (high_ - low_ <= 1e-9 * size || size == 0) {
    const double half = size == 0 ? 0.5 : 0.1 * size;
    low_ -= half;
    high_ += half;
  } else if (kind_ == Kind::kLinear) {
    const double added = margin * (high_ - low_);
    low_ -= added;
    high_ += added;
  } else {
    const double factor = std::pow(high_ / low_, margin);
    low_ /= factor;
    high_ *= factor;
  }
}

double ChartScale::share(double value) const {
  if (kind_ == Kind::kLogarithmic) return std::log(value / low_) / std::log(high_ / low_);
  return (value - low_) / (high_ - low_);
}

std::vector<ChartScale::Tick> ChartScale::ticks(int most) const {
  std::vector<Tick> ticks;
  const bool by_decades = kind_ == Kind::kLogarithmic && high_ / low_ >= 20;
  const std::vector<double> values = by_decades ? decades(most) : nice_ticks(low_, high_, most);
  const double step = values.size() > 1 ? values[1] - values[0] : std::max(std::abs(values[0]), 1e-3);
  for (const double value : values) ticks.push_back({value, tick_label(value, by_decades ? value : step)});
  return ticks;
}

/// Powers of ten, with 2 and 5 between them where there is room, or only every few powers where there is
/// none.
std::vector<double> ChartScale::decades(int most) const {
  const int first = static_cast<int>(std::floor(std::log10(low_))),
            last = static_cast<int>(std::ceil(std::log10(high_)));
  const bool between = 3 * (last - first) <= most;
  const int stride = std::max(1, (last - first + most - 1) / most);
  std::vector<double> values;
  for (int power = first; power <= last; power += stride) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, power);
      if ((factor == 1 || between) && value >= low_ && value <= high_) values.push_back(value);
    }
  }
  return values;
}

std::vector<double> nice_ticks(double low, double high, int most) {
  if (!(low < high)) return {low};
  const double smallest = (high - low) / most;
  const double power = std::pow(10.0, std::floor(std::log10(smallest)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= smallest * (1 - 1e-9)) step = factor * power;
  }
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  for (double i = first; i <= last; ++i) ticks.push_back(i * step + 0.0);  // + 0.0: no tick at −0
  return ticks;
}

std::vector<double> spread_labels(const std::vector<double>& wanted, double gap, double low, double high) {
  std::vector<size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return wanted[i]; });
  std::vector<double> placed = wanted;
  double floor = low;
  for (const size_t i : order) {
    placed[i] = std::max(placed[i], floor);
    floor = placed[i] + gap;
  }
  double ceiling = high;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    placed[*i] = std::min(placed[*i], ceiling);
    ceiling = placed[*i] - gap;
  }
  return placed;
}

}  // namespace adtrain
