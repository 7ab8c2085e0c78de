#pragma once

#include <string>
#include <vector>

namespace adtrain {

/// One axis of a chart: its range of values, their mapping to [0, 1], and its ticks.
class ChartScale {
 public:
  enum class Kind { kLinear, kLogarithmic };
  struct Tick {
    double value;
    std::string label;
  };

  explicit ChartScale(Kind kind = Kind::kLinear) : kind_(kind) {}

  /// Whether a value has a place on this axis: not NaN, not infinite or absurdly large, positive if
  /// logarithmic.
  bool holds(double value) const;
  /// Widens the axis so that it spans `value`; a value that it cannot hold is ignored.
  void include(double value);
  /// Adds this share of its length at both ends, and gives an axis with no value or one value some length.
  /// Must be called once, after the last `include`.
  void settle(double margin);
  /// Makes the axis begin at `value`, after `settle`.
  void begin_at(double value) { low_ = value; }

  double low() const { return low_; }
  double high() const { return high_; }
  /// 0 at `low`, 1 at `high`.
  double share(double value) const;
  /// At 1, 2 or 5 × 10^n, about `most` of them; logarithmic axes of several decades have them at powers of
  /// ten.
  std::vector<Tick> ticks(int most) const;

 private:
  std::vector<double> decades(int most) const;

  Kind kind_;
  double low_ = 0, high_ = 0;
  bool empty_ = true;
};

/// Multiples of 1, 2 or 5 × 10^n in [low, high], at most `most` steps. Only `low` where low ≥ high.
std::vector<double> nice_ticks(double low, double high, int most);

/// Moves label positions apart to at least `gap`, as little as possible, within [low, high] where they fit;
/// their order stays. Results are in the order of `wanted`.
std::vector<double> spread_labels(const std::vector<double>& wanted, double gap, double low, double high);

}  // namespace adtrain
