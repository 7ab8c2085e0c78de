#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace adtrain {

/// One run of a sweep: what sets it apart.
struct SweepPoint {
  std::string name;                    ///< a folder's: "lr-1e-3-seed-2"
  std::vector<std::string> overrides;  ///< key=value, those that all points share too
};

/// The settings that a sweep tries.
class SweepGrid {
 public:
  /// An assignment is `key=value` or `key=value,value,…`; commas within brackets, braces or quotes belong to
  /// a value. Throws ConfigError where a key is assigned twice, or a list has a value twice or an empty one.
  explicit SweepGrid(const std::vector<std::string>& assignments);

  /// key=value of the first combination.
  std::vector<std::string> first() const;
  /// Every combination, each with every seed; the last varies fastest. Without `seeds` each keeps the
  /// configuration's own. Throws ConfigError where nothing varies, where several seeds are assigned beside
  /// them, and where there are more than 10 000 points.
  std::vector<SweepPoint> points(const std::vector<int64_t>& seeds) const;

 private:
  struct Axis {
    std::string key;
    std::vector<std::string> values;  ///< that it takes in turn
  };
  static Axis axis_of(const std::string& assignment);

  std::vector<Axis> axes_;
};

}  // namespace adtrain
