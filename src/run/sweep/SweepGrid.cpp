#include "run/sweep/SweepGrid.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

constexpr size_t kMostPoints = 10'000;
constexpr const char* kSeed = "seed";

/// The parts between the commas that are in no brackets, braces or quotes.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts = {""};
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      parts.emplace_back();
      continue;
    }
    parts.back() += c;
  }
  return parts;
}

/// The value without what means something to a shell or a file system.
std::string in_a_name(const std::string& value) {
  constexpr size_t kMostLetters = 40;
  std::string name;
  for (const char c : value.substr(0, kMostLetters)) {
    const bool plain =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '+' || c == '_';
    name += plain ? c : '_';
  }
  return name;
}

}  // namespace

SweepGrid::Axis SweepGrid::axis_of(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw ConfigError(
        fmt::format("--set: found '{}'; expected key=value, or key=value,value,… for values to try, such as "
                    "lr=1e-3,3e-3",
                    abridged(assignment)));
  }
  Axis axis = {assignment.substr(0, equals), parts_of(assignment.substr(equals + 1))};
  if (axis.values.size() == 1) return axis;
  std::set<std::string> seen;
  for (const std::string& value : axis.values) {
    if (value.empty() || !seen.insert(value).second) {
      throw ConfigError(fmt::format("--set {}: found {}; expected distinct values between the commas",
                                    abridged(assignment),
                                    value.empty() ? "an empty value" : "'" + value + "' twice"));
    }
  }
  return axis;
}

SweepGrid::SweepGrid(const std::vector<std::string>& assignments) {
  for (const std::string& assignment : assignments) {
    Axis axis = axis_of(assignment);
    if (std::ranges::find(axes_, axis.key, &Axis::key) != axes_.end()) {
      throw ConfigError(fmt::format(
          "--set: found {0} twice; expected all its values in one, as in --set {0}=1,2", abridged(axis.key)));
    }
    axes_.push_back(std::move(axis));
  }
}

std::vector<std::string> SweepGrid::first() const {
  std::vector<std::string> overrides;
  for (const Axis& axis : axes_) overrides.push_back(axis.key + "=" + axis.values.front());
  return overrides;
}

std::vector<SweepPoint> SweepGrid::points(const std::vector<int64_t>& seeds) const {
  std::vector<Axis> axes = axes_;
  if (!seeds.empty()) {
    const auto known = std::ranges::find(axes, kSeed, &Axis::key);
    if (known != axes.end() && known->values.size() > 1)
      throw ConfigError("found several seeds by --set and --seeds; expected one of them");
    if (known != axes.end()) axes.erase(known);
    axes.push_back({kSeed, {}});
    for (const int64_t seed : seeds) axes.back().values.push_back(std::to_string(seed));
  }
  std::vector<SweepPoint> points = {{"", {}}};
  for (const Axis& axis : axes) {
    const bool named = axis.values.size() > 1 || (axis.key == kSeed && !seeds.empty());
    std::vector<SweepPoint> longer;
    for (const SweepPoint& point : points) {
      for (const std::string& value : axis.values) {
        SweepPoint next = point;
        next.overrides.push_back(axis.key + "=" + value);
        if (named) next.name += (next.name.empty() ? "" : "-") + axis.key + "-" + in_a_name(value);
        longer.push_back(std::move(next));
      }
    }
    points = std::move(longer);
    if (points.size() > kMostPoints) {
      throw ConfigError(fmt::format("found more than {} combinations; expected fewer: leave values out",
                                    grouped(kMostPoints)));
    }
  }
  if (points.front().name.empty()) {
    throw ConfigError(
        "nothing varies: expected values to try, such as --set lr=1e-3,3e-3, or several seeds by --seeds 5");
  }
  std::set<std::string> names;
  for (SweepPoint& point : points) {  // values may differ only in what a name leaves out
    const std::string name = point.name;
    for (int number = 2; !names.insert(point.name).second; ++number)
      point.name = fmt::format("{}-{}", name, number);
  }
  return points;
}

}  // namespace adtrain
