#pragma once

#include <functional>
#include <string>
#include <vector>

#include <cairo.h>

#include "telemetry/Chart.h"
#include "telemetry/ChartScale.h"

namespace adtrain {

/// Draws one chart on one cairo surface, in points from the top left corner: title and legend above the plot,
/// axes at its left and below, the reference lines' labels in a margin at its right, where no data overlaps
/// them.
class ChartDrawing {
 public:
  static constexpr double kWidth = 900, kHeight = 560;

  /// Borrows both.
  ChartDrawing(const Chart& chart, cairo_t* cairo);
  void draw();

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
  double half_band(const Series& series, size_t i) const;
  bool drawable(const Series& series, size_t i) const;
  /// Calls `run` for each unbroken stretch [first, last) of drawable points.
  void for_each_run(const Series& series, const std::function<void(size_t first, size_t last)>& run) const;

  void draw_axes();
  void draw_band(const Series& series, Colour colour);
  void draw_line(const Series& series, Colour colour);
  void draw_references();
  void draw_legend();
  void draw_titles();

  void set_colour(Colour colour, double alpha = 1);
  double text_width(const std::string& text, double size);
  void draw_text(const std::string& text, double x, double y, double size, Align align, Colour colour);
  void draw_segment(double x0, double y0, double x1, double y1, Colour colour, double width);

  double x_at(double value) const { return left_ + x_scale_.share(value) * (right_ - left_); }
  double y_at(double value) const { return bottom_ - y_scale_.share(value) * (bottom_ - top_); }
  Colour colour_of(size_t series) const;

  static const Colour kPalette[], kInk, kGrey, kGrid, kWhite;

  const Chart& chart_;
  cairo_t* cairo_;
  ChartScale x_scale_, y_scale_;
  double left_, right_, top_, bottom_;
  std::vector<LegendEntry> legend_;
};

}  // namespace adtrain
