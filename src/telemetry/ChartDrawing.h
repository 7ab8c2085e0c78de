#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <cairo.h>

#include "telemetry/Chart.h"
#include "telemetry/ChartScale.h"

namespace adtrain {

/// Draws one chart on one cairo surface, in points / zoom from the top left corner: title and legend above
/// the plot, axes at its left and below, the reference lines' labels in a margin at its right, where no data
/// overlaps them.
class ChartDrawing {
 public:
  /// Borrows both.
  ChartDrawing(const Chart& chart, cairo_t* cairo);
  void draw();

  /// What stands beside a reference line: its name and value.
  static std::string label_of(const Reference& reference);
  /// The value of the bar at x = `place`; nothing where the series has none.
  static std::optional<double> bar_at(const Series& series, size_t place);
  /// What stands above a bar.
  static std::string text_of_bar(double value);

 private:
  struct Colour {
    double red, green, blue;
  };
  enum class Align { kStart, kMiddle, kEnd };
  struct LegendEntry {
    size_t series;
    double x, y;
  };

  void fit_scales();
  void lay_out_legend();
  /// An edge of the band, or the line where it has none there.
  double edge_of(const Series& series, const std::vector<double>& edge, size_t i) const;
  bool drawable(const Series& series, size_t i) const;
  /// Calls `run` for each unbroken stretch [first, last) of drawable points.
  void for_each_run(const Series& series, const std::function<void(size_t first, size_t last)>& run) const;

  void draw_axes();
  void draw_band(const Series& series, Colour colour);
  void draw_line(const Series& series, size_t number);
  void draw_bars(const Series& series, size_t number);
  /// A bar's name, in two lines where one is too long.
  void draw_name_of_bar(size_t place);
  void draw_references();
  void draw_legend();
  void draw_titles();

  void set_colour(Colour colour, double alpha = 1);
  double text_width(const std::string& text, double size);
  void draw_text(const std::string& text, double x, double y, double size, Align align, Colour colour);
  void draw_segment(double x0, double y0, double x1, double y1, Colour colour, double width);

  double x_at(double value) const { return left_ + x_scale_.share(value) * (right_ - left_); }
  double y_at(double value) const { return bottom_ - y_scale_.share(value) * (bottom_ - top_); }
  /// How many lines that are not faint are before it: a faint series shares the look of the line that
  /// follows.
  size_t look_of(size_t series) const;
  Colour colour_of(size_t series) const;
  /// Lines are dashed once all colours are in use.
  void set_dashes(size_t series);

  static const Colour kPalette[], kInk, kGrey, kGrid, kWhite;

  const Chart& chart_;
  cairo_t* cairo_;
  ChartScale x_scale_, y_scale_;
  double width_, height_;
  double left_, right_, top_, bottom_;
  std::vector<LegendEntry> legend_;
};

}  // namespace adtrain
