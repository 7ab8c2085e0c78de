#include "telemetry/Chart.h"

#include <cairo-svg.h>
#include <cairo.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "base/File.h"

namespace adtrain {
namespace {

constexpr double kWidth = 900, kHeight = 560;
constexpr double kLeft = 76, kRight = 28, kTop = 64, kBottom = 64;
constexpr double kPngScale = 2;  ///< sharp on dense screens

struct Colour {
  double red, green, blue;
};
/// Okabe and Ito's palette, told apart by colour-blind eyes as well.
constexpr Colour kPalette[] = {{0.00, 0.45, 0.70}, {0.84, 0.37, 0.00}, {0.00, 0.62, 0.45}, {0.80, 0.47, 0.65}, {0.90, 0.62, 0.00}};
constexpr Colour kInk = {0.15, 0.15, 0.17}, kGrey = {0.45, 0.45, 0.48}, kGrid = {0.90, 0.90, 0.91};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void include(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  /// A range with some width, also where nothing or one value was included.
  void settle(double margin_share) {
    if (low > high) low = 0, high = 1;
    if (low == high) low -= 0.5, high += 0.5;
    const double margin = margin_share * (high - low);
    low -= margin;
    high += margin;
  }
};

enum class Align { kStart, kMiddle, kEnd };

/// One chart on one cairo surface.
class Drawing {
 public:
  Drawing(const Chart& chart, cairo_t* cairo) : chart_(chart), cairo_(cairo) {
    for (const Series& series : chart.series) {
      for (size_t i = 0; i < series.x.size(); ++i) {
        const double half = series.band.empty() ? 0 : series.band[i];
        x_.include(series.x[i]);
        y_.include(series.y[i] - half);
        y_.include(series.y[i] + half);
      }
    }
    for (const Reference& reference : chart.references) y_.include(reference.y);
    if (chart.from_zero) y_.include(0);
    const bool keep_zero = chart.from_zero && y_.low >= 0;
    x_.settle(0);
    y_.settle(0.05);
    if (keep_zero) y_.low = 0;
  }

  void draw() {
    colour({1, 1, 1});
    cairo_paint(cairo_);
    cairo_select_font_face(cairo_, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    axes();
    cairo_save(cairo_);
    cairo_rectangle(cairo_, kLeft, kTop, plot_width(), plot_height());
    cairo_clip(cairo_);
    for (size_t i = 0; i < chart_.series.size(); ++i) band(chart_.series[i], colour_of(i));
    for (size_t i = 0; i < chart_.series.size(); ++i) line(chart_.series[i], colour_of(i));
    cairo_restore(cairo_);
    references();
    legend();
    titles();
  }

 private:
  static double plot_width() { return kWidth - kLeft - kRight; }
  static double plot_height() { return kHeight - kTop - kBottom; }
  double to_x(double value) const { return kLeft + (value - x_.low) / (x_.high - x_.low) * plot_width(); }
  double to_y(double value) const { return kTop + (y_.high - value) / (y_.high - y_.low) * plot_height(); }

  void colour(Colour c, double alpha = 1) { cairo_set_source_rgba(cairo_, c.red, c.green, c.blue, alpha); }

  /// A faint series shares the colour of the line that follows it.
  Colour colour_of(size_t index) const {
    size_t solid = 0;
    for (size_t i = 0; i < index; ++i) solid += chart_.series[i].faint ? 0 : 1;
    return kPalette[solid % std::size(kPalette)];
  }

  double text_width(const std::string& text, double size) {
    cairo_text_extents_t extents;
    cairo_set_font_size(cairo_, size);
    cairo_text_extents(cairo_, text.c_str(), &extents);
    return extents.x_advance;
  }
  void text(const std::string& words, double x, double y, double size, Align align, Colour c) {
    const double width = text_width(words, size);
    colour(c);
    cairo_move_to(cairo_, align == Align::kStart ? x : align == Align::kMiddle ? x - width / 2 : x - width, y);
    cairo_show_text(cairo_, words.c_str());
  }
  void stroke(double x0, double y0, double x1, double y1, Colour c, double width) {
    colour(c);
    cairo_set_line_width(cairo_, width);
    cairo_move_to(cairo_, x0, y0);
    cairo_line_to(cairo_, x1, y1);
    cairo_stroke(cairo_);
  }

  void axes() {
    for (const double tick : nice_ticks(y_.low, y_.high, 7)) {
      stroke(kLeft, to_y(tick), kWidth - kRight, to_y(tick), kGrid, 1);
      text(fmt::format("{:g}", tick), kLeft - 9, to_y(tick) + 4.5, 13, Align::kEnd, kGrey);
    }
    const double bottom = kTop + plot_height();
    for (const double tick : nice_ticks(x_.low, x_.high, 10)) {
      stroke(to_x(tick), bottom, to_x(tick), bottom + 5, kGrey, 1);
      text(fmt::format("{:g}", tick), to_x(tick), bottom + 21, 13, Align::kMiddle, kGrey);
    }
    stroke(kLeft, bottom, kWidth - kRight, bottom, kGrey, 1.2);
  }

  void band(const Series& series, Colour c) {
    if (series.band.empty()) return;
    for (size_t i = 0; i < series.x.size(); ++i) cairo_line_to(cairo_, to_x(series.x[i]), to_y(series.y[i] + series.band[i]));
    for (size_t i = series.x.size(); i-- > 0;) cairo_line_to(cairo_, to_x(series.x[i]), to_y(series.y[i] - series.band[i]));
    cairo_close_path(cairo_);
    colour(c, 0.14);
    cairo_fill(cairo_);
  }

  void line(const Series& series, Colour c) {
    colour(c, series.faint ? 0.28 : 1);
    cairo_set_line_width(cairo_, series.faint ? 1 : 2.4);
    cairo_set_line_join(cairo_, CAIRO_LINE_JOIN_ROUND);
    cairo_set_line_cap(cairo_, CAIRO_LINE_CAP_ROUND);
    bool pen_down = false;
    for (size_t i = 0; i < series.x.size(); ++i) {
      const bool finite = std::isfinite(series.x[i]) && std::isfinite(series.y[i]);
      if (finite && pen_down) cairo_line_to(cairo_, to_x(series.x[i]), to_y(series.y[i]));
      if (finite && !pen_down) {
        cairo_move_to(cairo_, to_x(series.x[i]), to_y(series.y[i]));
        cairo_rel_line_to(cairo_, 0, 0);  // a lone point shows as a dot
      }
      pen_down = finite;
    }
    cairo_stroke(cairo_);
  }

  void references() {
    const double dashes[] = {6, 5};
    for (const Reference& reference : chart_.references) {
      if (!std::isfinite(reference.y)) continue;
      const double y = to_y(reference.y);
      cairo_set_dash(cairo_, dashes, 2, 0);
      stroke(kLeft, y, kWidth - kRight, y, kGrey, 1.3);
      cairo_set_dash(cairo_, nullptr, 0, 0);
      const std::string label = fmt::format("{} {:.2f}", reference.name, reference.y);
      // Above its line, unless that would leave the plot.
      text(label, kWidth - kRight - 4, y - 6 < kTop ? y + 16 : y - 6, 13, Align::kEnd, kGrey);
    }
  }

  void legend() {
    double x = kLeft;
    for (size_t i = 0; i < chart_.series.size(); ++i) {
      if (chart_.series[i].faint) continue;
      stroke(x, kTop - 16, x + 22, kTop - 16, colour_of(i), 3);
      text(chart_.series[i].name, x + 29, kTop - 11.5, 13, Align::kStart, kInk);
      x += 29 + text_width(chart_.series[i].name, 13) + 24;
    }
  }

  void titles() {
    text(chart_.title, kLeft, 30, 17, Align::kStart, kInk);
    text(chart_.x_label, kLeft + plot_width() / 2, kHeight - 18, 14, Align::kMiddle, kInk);
    cairo_save(cairo_);
    cairo_translate(cairo_, 24, kTop + plot_height() / 2);
    cairo_rotate(cairo_, -std::acos(0.0));
    text(chart_.y_label, 0, 0, 14, Align::kMiddle, kInk);
    cairo_restore(cairo_);
  }

  const Chart& chart_;
  cairo_t* cairo_;
  Range x_, y_;
};

cairo_status_t append(void* bytes, const unsigned char* data, unsigned int length) {
  static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
}

using Surface = std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)>;

void draw_on(cairo_surface_t* surface, const Chart& chart, double scale) {
  const std::unique_ptr<cairo_t, decltype(&cairo_destroy)> cairo(cairo_create(surface), cairo_destroy);
  cairo_scale(cairo.get(), scale, scale);
  Drawing(chart, cairo.get()).draw();
}

}  // namespace

void Chart::draw(const std::filesystem::path& path) const {
  std::string bytes;
  if (path.extension() == ".svg") {
    const Surface surface(cairo_svg_surface_create_for_stream(append, &bytes, kWidth, kHeight), cairo_surface_destroy);
    draw_on(surface.get(), *this, 1);
    cairo_surface_finish(surface.get());
  } else {
    const auto pixels = [](double points) { return static_cast<int>(points * kPngScale); };
    const Surface surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, pixels(kWidth), pixels(kHeight)), cairo_surface_destroy);
    draw_on(surface.get(), *this, kPngScale);
    cairo_surface_write_to_png_stream(surface.get(), append, &bytes);
  }
  write_file_atomically(path, bytes);
}

std::vector<double> nice_ticks(double low, double high, int most) {
  if (!(low < high)) return {low};
  const double raw = (high - low) / most;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= raw * (1 - 1e-9)) step = factor * power;
  }
  std::vector<double> ticks;
  for (auto i = static_cast<int64_t>(std::ceil(low / step - 1e-9)); static_cast<double>(i) * step <= high + 1e-9 * step; ++i) {
    ticks.push_back(static_cast<double>(i) * step);
  }
  return ticks;
}

std::vector<double> smoothed(const std::vector<double>& values, double weight) {
  std::vector<double> result;
  double sum = 0, mass = 0;
  for (const double value : values) {
    if (std::isfinite(value)) {
      sum = weight * sum + (1 - weight) * value;
      mass = weight * mass + (1 - weight);
    }
    result.push_back(mass > 0 ? sum / mass : value);
  }
  return result;
}

}  // namespace adtrain
