#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace adtrain {

/// A figure over steps or episodes; `x` ascends and is as long as `y`.
struct Curve {
  std::vector<int64_t> x;
  std::vector<double> y;
};

/// The figures of a file that MetricsLog has written, by name. What was not finite is NaN; what is no number,
/// such as a list by rank, is left out, and so is a line that is cut off.
/// Throws std::filesystem::filesystem_error where the file cannot be read.
std::map<std::string, Curve> read_metrics(const std::filesystem::path& path);

}  // namespace adtrain
