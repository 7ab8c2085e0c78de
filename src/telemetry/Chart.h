#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace adtrain {

/// One line of a chart: `x` and `y` have the same length. Points that are not finite break the line.
struct Series {
  std::string name;
  std::vector<double> x, y;
  std::vector<double> band;  ///< half-width of a shaded band around y at each point; empty for none
  bool faint =
      false;  ///< thin and pale: raw figures behind their smoothed line, which follows in the same colour
};

/// A horizontal dashed line for comparison.
struct Reference {
  std::string name;
  double y;
};

/// A line chart of 900 × 560 points, drawn by the same code to SVG and, at twice the resolution, to PNG.
/// Series may have no points, one point, constant values or NaN.
struct Chart {
  std::string title, x_label, y_label;
  std::vector<Series> series;
  std::vector<Reference> references;
  bool from_zero = false;  ///< the y axis begins at 0 unless a line goes below
  bool log_y = false;      ///< a logarithmic y axis; points that are not positive break the line

  /// Writes `path`, as .svg or .png by its extension, atomically. Throws std::filesystem::filesystem_error
  /// where that fails.
  void draw(const std::filesystem::path& path) const;
};

/// A smoothed series without lag: each value's neighbours on both sides have weight `weight`^distance, 0 ≤
/// weight < 1. Non-finite values have weight 0.
std::vector<double> smoothed(const std::vector<double>& values, double weight);

}  // namespace adtrain
