#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace adtrain {

/// The edges of a shaded band around a line, one of each for each of its points. An edge that is not finite
/// is at the line.
struct Band {
  std::vector<double> low, high;

  bool empty() const { return low.empty(); }
  static Band around(const std::vector<double>& middle, const std::vector<double>& half_width);
};

/// One line of a chart: `x` and `y` have the same length. Points that are not finite break the line.
struct Series {
  std::string name;
  std::vector<double> x, y;
  Band band;  ///< empty for none
  bool faint =
      false;  ///< thin and pale: raw figures behind their smoothed line, which follows in the same colour
};

/// A horizontal dashed line for comparison.
struct Reference {
  std::string name;
  double y;
};

/// What a chart is drawn on. Lengths are in points, 1/72 inch.
struct Page {
  double width = 900, height = 560;
  double zoom = 1;            ///< of text and lines: ticks have 13 points × zoom
  double pixels_a_point = 2;  ///< of a PNG
};

/// A line chart or a bar chart, drawn by the same code to SVG, PDF and PNG. Series may have no points, one
/// point, constant values or NaN.
struct Chart {
  std::string title, x_label, y_label;
  std::vector<Series> series;
  /// Names below the axis at x = 0, 1, …: every point is then a bar with its value above it. Empty for lines.
  std::vector<std::string> bars;
  std::vector<Reference> references;
  bool from_zero = false;  ///< the y axis begins at 0 unless a line goes below
  bool log_y = false;      ///< a logarithmic y axis; points that are not positive break the line
  Page page;

  /// Whether `draw` knows the extension: .svg, .pdf or .png.
  static bool can_draw(const std::filesystem::path& path);
  /// Writes `path`, in the format that its extension names, atomically. Throws
  /// std::filesystem::filesystem_error where that fails.
  void draw(const std::filesystem::path& path) const;
};

/// A smoothed series without lag: each value's neighbours on both sides have weight `weight`^distance, 0 ≤
/// weight < 1. Non-finite values have weight 0.
std::vector<double> smoothed(const std::vector<double>& values, double weight);

}  // namespace adtrain
