#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace adtrain {

/// One line of a chart. `x` and `y` have the same length; points that are not finite break the line.
struct Series {
  std::string name;
  std::vector<double> x, y;
  std::vector<double> band;  ///< half-width of a shaded band around y at each point; empty for none
  bool faint = false;        ///< thin and pale: raw figures behind their smoothed line, which takes the same colour
};

/// A horizontal dashed line to compare with.
struct Reference {
  std::string name;
  double y;
};

/// A line chart, drawn by one code to SVG and PNG.
struct Chart {
  std::string title, x_label, y_label;
  std::vector<Series> series;
  std::vector<Reference> references;
  bool from_zero = false;  ///< the y axis holds 0

  /// Writes `path`, .svg or .png by its ending, in one step. Throws std::filesystem::filesystem_error where it cannot.
  void draw(const std::filesystem::path& path) const;
};

/// Ticks at 1, 2 or 5 × 10^n that cover [low, high] in at most `most` steps. For low ≥ high a single one.
std::vector<double> nice_ticks(double low, double high, int most);

/// The exponentially smoothed series; `weight` of the past, 0 … 1, without bias at the start.
std::vector<double> smoothed(const std::vector<double>& values, double weight);

}  // namespace adtrain
