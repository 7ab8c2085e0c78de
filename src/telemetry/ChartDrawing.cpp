#include "telemetry/ChartDrawing.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

namespace adtrain {
namespace {

constexpr double kMargin = 28;
constexpr double kTitleSize = 18, kLabelSize = 14, kTickSize = 13;
constexpr double kLegendRow = 22, kLegendSwatch = 24;
constexpr double kXTickSpace = 100, kYTickSpace = 80;  ///< how many ticks there are follows from these
constexpr double kLeastPlot = 40;                      ///< a tall legend leaves this height to the plot
constexpr double kNameRow = 16;                        ///< below a bar
constexpr double kBarWidth = 0.6;                      ///< of the distance between two bars

int most_ticks(double length, double space) {
  return std::max(4, static_cast<int>(length / space));
}

}  // namespace

/// Okabe and Ito's palette, which is also distinguishable to colour-blind readers.
const ChartDrawing::Colour ChartDrawing::kPalette[] = {{0.00, 0.45, 0.70}, {0.84, 0.37, 0.00},
                                                       {0.00, 0.62, 0.45}, {0.80, 0.47, 0.65},
                                                       {0.90, 0.62, 0.00}, {0.34, 0.71, 0.91}};
const ChartDrawing::Colour ChartDrawing::kInk = {0.13, 0.14, 0.17};
const ChartDrawing::Colour ChartDrawing::kGrey = {0.42, 0.43, 0.47};
const ChartDrawing::Colour ChartDrawing::kGrid = {0.90, 0.91, 0.92};
const ChartDrawing::Colour ChartDrawing::kWhite = {1, 1, 1};

ChartDrawing::ChartDrawing(const Chart& chart, cairo_t* cairo)
    : chart_(chart),
      cairo_(cairo),
      y_scale_(chart.log_y ? ChartScale::Kind::kLogarithmic : ChartScale::Kind::kLinear),
      width_(chart.page.width / chart.page.zoom),
      height_(chart.page.height / chart.page.zoom),
      left_(kMargin),
      right_(width_ - kMargin),
      top_(kMargin + (chart.title.empty() ? 0 : 36)),
      bottom_(height_ - 68 - (chart.bars.empty() ? 0 : kNameRow)) {
  cairo_select_font_face(cairo_, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  fit_scales();
  double widest_tick = 0;
  for (const auto& tick : y_scale_.ticks(most_ticks(height_, kYTickSpace)))
    widest_tick = std::max(widest_tick, text_width(tick.label, kTickSize));
  left_ += 30 + widest_tick;
  lay_out_legend();
  double widest_reference = 0;
  for (const Reference& reference : chart_.references) {
    if (!y_scale_.holds(reference.y)) continue;
    widest_reference = std::max(widest_reference, text_width(label_of(reference), kTickSize) + 10);
  }
  right_ = std::max(right_ - widest_reference, width_ / 2);
}

std::string ChartDrawing::label_of(const Reference& reference) {
  return fmt::format("{} {:.2f}", reference.name, reference.y);
}

std::optional<double> ChartDrawing::bar_at(const Series& series, size_t place) {
  for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
    if (series.x[i] == static_cast<double>(place) && std::isfinite(series.y[i])) return series.y[i];
  }
  return std::nullopt;
}

std::string ChartDrawing::text_of_bar(double value) {
  return std::abs(value) < 100 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

void ChartDrawing::draw() {
  set_colour(kWhite);
  cairo_paint(cairo_);
  cairo_set_line_join(cairo_, CAIRO_LINE_JOIN_ROUND);
  cairo_set_line_cap(cairo_, CAIRO_LINE_CAP_BUTT);
  draw_axes();
  draw_references();
  cairo_save(cairo_);
  cairo_rectangle(cairo_, left_ - 3, top_, right_ - left_ + 6, bottom_ - top_);
  cairo_clip(cairo_);
  for (size_t i = 0; i < chart_.series.size(); ++i) draw_band(chart_.series[i], colour_of(i));
  for (size_t i = 0; i < chart_.series.size(); ++i) {
    if (chart_.bars.empty()) {
      draw_line(chart_.series[i], i);
    } else {
      draw_bars(chart_.series[i], i);
    }
  }
  cairo_restore(cairo_);
  draw_legend();
  draw_titles();
}

void ChartDrawing::fit_scales() {
  bool below_zero = false;
  for (const Series& series : chart_.series) {
    for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
      if (!drawable(series, i)) continue;
      x_scale_.include(series.x[i]);
      y_scale_.include(series.y[i]);
      for (const auto* edge : {&series.band.low, &series.band.high})
        y_scale_.include(edge_of(series, *edge, i));
      below_zero = below_zero || series.y[i] < 0;
    }
  }
  for (const Reference& reference : chart_.references) {
    y_scale_.include(reference.y);
    below_zero = below_zero || reference.y < 0;
  }
  if (chart_.from_zero || !chart_.bars.empty()) y_scale_.include(0);
  if (!chart_.bars.empty()) {
    x_scale_.include(-0.5);
    x_scale_.include(static_cast<double>(chart_.bars.size()) - 0.5);
  }
  x_scale_.settle(0);
  y_scale_.settle(0.05);
  if (chart_.from_zero && !chart_.log_y && !below_zero) y_scale_.begin_at(0);
}

/// Lays the legend out in rows above the plot; each row moves the plot down.
void ChartDrawing::lay_out_legend() {
  double x = left_;
  for (size_t i = 0; i < chart_.series.size(); ++i) {
    const Series& series = chart_.series[i];
    if (series.faint || series.name.empty()) continue;
    const double width = kLegendSwatch + 8 + text_width(series.name, kTickSize);
    if (x > left_ && x + width > right_) {
      x = left_;
      top_ += kLegendRow;
    }
    legend_.push_back({i, x, top_ - 4});
    x += width + 26;
  }
  if (!legend_.empty()) top_ += kLegendRow;
  top_ = std::min(top_, bottom_ - kLeastPlot);
}

double ChartDrawing::edge_of(const Series& series, const std::vector<double>& edge, size_t i) const {
  return i < edge.size() && std::isfinite(edge[i]) ? edge[i] : series.y[i];
}

bool ChartDrawing::drawable(const Series& series, size_t i) const {
  return x_scale_.holds(series.x[i]) && y_scale_.holds(series.y[i]);
}

void ChartDrawing::for_each_run(const Series& series, const std::function<void(size_t, size_t)>& run) const {
  const size_t count = std::min(series.x.size(), series.y.size());
  for (size_t first = 0; first < count;) {
    size_t last = first;
    while (last < count && drawable(series, last)) ++last;
    if (last > first) run(first, last);
    first = last + 1;
  }
}

void ChartDrawing::draw_axes() {
  for (const auto& [value, label] : y_scale_.ticks(most_ticks(height_, kYTickSpace))) {
    draw_segment(left_, y_at(value), right_, y_at(value), kGrid, 1);
    draw_text(label, left_ - 10, y_at(value) + 4.5, kTickSize, Align::kEnd, kGrey);
  }
  for (size_t place = 0; place < chart_.bars.size(); ++place) draw_name_of_bar(place);
  const auto x_ticks =
      chart_.bars.empty() ? x_scale_.ticks(most_ticks(width_, kXTickSpace)) : std::vector<ChartScale::Tick>();
  for (const auto& [value, label] : x_ticks) {
    draw_segment(x_at(value), bottom_, x_at(value), bottom_ + 5, kGrey, 1);
    draw_text(label, x_at(value), bottom_ + 21, kTickSize, Align::kMiddle, kGrey);
  }
  draw_segment(left_, bottom_, right_, bottom_, kGrey, 1.2);
}

void ChartDrawing::draw_band(const Series& series, Colour colour) {
  if (series.band.empty()) return;
  set_colour(colour, 0.15);
  const auto corner = [&](const std::vector<double>& edge, size_t i) {
    const double value = edge_of(series, edge, i);
    cairo_line_to(cairo_, x_at(series.x[i]), y_scale_.holds(value) ? y_at(value) : bottom_);
  };
  for_each_run(series, [&](size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) corner(series.band.high, i);
    for (size_t i = last; i-- > first;) corner(series.band.low, i);
    cairo_close_path(cairo_);
    cairo_fill(cairo_);
  });
}

void ChartDrawing::draw_line(const Series& series, size_t number) {
  set_colour(colour_of(number), series.faint ? 0.3 : 1);
  set_dashes(number);
  const double width = series.faint ? 1 : 2.4;
  cairo_set_line_width(cairo_, width);
  for_each_run(series, [&](size_t first, size_t last) {
    if (last - first == 1) {  // a single point is drawn as a dot
      cairo_arc(cairo_, x_at(series.x[first]), y_at(series.y[first]), 1.5 * width, 0, 2 * M_PI);
      cairo_fill(cairo_);
      return;
    }
    for (size_t i = first; i < last; ++i) cairo_line_to(cairo_, x_at(series.x[i]), y_at(series.y[i]));
    cairo_stroke(cairo_);
  });
  cairo_set_dash(cairo_, nullptr, 0, 0);
}

void ChartDrawing::draw_bars(const Series& series, size_t number) {
  for (size_t place = 0; place < chart_.bars.size(); ++place) {
    const std::optional<double> value = bar_at(series, place);
    if (!value || !y_scale_.holds(*value)) continue;
    const double foot = y_at(chart_.log_y ? y_scale_.low() : 0), head = y_at(*value);
    const double middle = x_at(static_cast<double>(place)), slot = x_at(1) - x_at(0);
    set_colour(colour_of(number));
    cairo_rectangle(cairo_, middle - kBarWidth * slot / 2, std::min(foot, head), kBarWidth * slot,
                    std::abs(foot - head));
    cairo_fill(cairo_);
    draw_text(text_of_bar(*value), middle, std::min(foot, head) - 5, kTickSize, Align::kMiddle, kInk);
  }
}

void ChartDrawing::draw_name_of_bar(size_t place) {
  const std::string& name = chart_.bars[place];
  const double middle = x_at(static_cast<double>(place)), slot = x_at(1) - x_at(0);
  size_t end = name.size();
  while (text_width(name.substr(0, end), kTickSize) > slot && end > 0) {
    const size_t space = name.rfind(' ', end - 1);
    if (space == std::string::npos) break;
    end = space;
  }
  draw_text(name.substr(0, end), middle, bottom_ + 21, kTickSize, Align::kMiddle, kGrey);
  if (end < name.size())
    draw_text(name.substr(end + 1), middle, bottom_ + 21 + kNameRow, kTickSize, Align::kMiddle, kGrey);
}

void ChartDrawing::draw_references() {
  std::vector<const Reference*> shown;
  std::vector<double> wanted;
  for (const Reference& reference : chart_.references) {
    if (!y_scale_.holds(reference.y)) continue;
    shown.push_back(&reference);
    wanted.push_back(y_at(reference.y));
  }
  const std::vector<double> placed = spread_labels(wanted, kTickSize + 4, top_, bottom_);
  for (size_t i = 0; i < shown.size(); ++i) {
    constexpr double kDashes[] = {6, 5};
    cairo_set_dash(cairo_, kDashes, std::size(kDashes), 0);
    draw_segment(left_, wanted[i], right_, wanted[i], kGrey, 1.3);
    cairo_set_dash(cairo_, nullptr, 0, 0);
    draw_text(label_of(*shown[i]), right_ + 10, placed[i] + 4.5, kTickSize, Align::kStart, kGrey);
  }
}

void ChartDrawing::draw_legend() {
  for (const LegendEntry& entry : legend_) {
    const Series& series = chart_.series[entry.series];
    const Colour colour = colour_of(entry.series);
    if (!series.band.empty()) {
      set_colour(colour, 0.15);
      cairo_rectangle(cairo_, entry.x, entry.y - 7, kLegendSwatch, 14);
      cairo_fill(cairo_);
    }
    set_dashes(entry.series);
    draw_segment(entry.x, entry.y, entry.x + kLegendSwatch, entry.y, colour, 2.6);
    cairo_set_dash(cairo_, nullptr, 0, 0);
    draw_text(series.name, entry.x + kLegendSwatch + 8, entry.y + 4.5, kTickSize, Align::kStart, kInk);
  }
}

void ChartDrawing::draw_titles() {
  cairo_select_font_face(cairo_, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_BOLD);
  const double room = width_ - kMargin - left_, width = text_width(chart_.title, kTitleSize);
  draw_text(chart_.title, left_, kMargin + 12, kTitleSize * std::min(1.0, room / std::max(width, 1.0)),
            Align::kStart, kInk);
  cairo_select_font_face(cairo_, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  draw_text(chart_.x_label, (left_ + right_) / 2, height_ - 18, kLabelSize, Align::kMiddle, kInk);
  cairo_save(cairo_);
  cairo_translate(cairo_, kMargin, (top_ + bottom_) / 2);
  cairo_rotate(cairo_, -M_PI / 2);
  draw_text(chart_.y_label, 0, 0, kLabelSize, Align::kMiddle, kInk);
  cairo_restore(cairo_);
}

void ChartDrawing::set_colour(Colour colour, double alpha) {
  cairo_set_source_rgba(cairo_, colour.red, colour.green, colour.blue, alpha);
}

double ChartDrawing::text_width(const std::string& text, double size) {
  cairo_text_extents_t extents;
  cairo_set_font_size(cairo_, size);
  cairo_text_extents(cairo_, text.c_str(), &extents);
  return extents.x_advance;
}

void ChartDrawing::draw_text(const std::string& text, double x, double y, double size, Align align,
                             Colour colour) {
  const double width = text_width(text, size);
  set_colour(colour);
  cairo_move_to(cairo_, align == Align::kStart ? x : align == Align::kMiddle ? x - width / 2 : x - width, y);
  cairo_show_text(cairo_, text.c_str());
  cairo_new_path(cairo_);
}

void ChartDrawing::draw_segment(double x0, double y0, double x1, double y1, Colour colour, double width) {
  set_colour(colour);
  cairo_set_line_width(cairo_, width);
  cairo_move_to(cairo_, x0, y0);
  cairo_line_to(cairo_, x1, y1);
  cairo_stroke(cairo_);
}

size_t ChartDrawing::look_of(size_t series) const {
  return static_cast<size_t>(std::count_if(chart_.series.begin(),
                                           chart_.series.begin() + static_cast<std::ptrdiff_t>(series),
                                           [](const Series& other) { return !other.faint; }));
}

ChartDrawing::Colour ChartDrawing::colour_of(size_t series) const {
  return kPalette[look_of(series) % std::size(kPalette)];
}

void ChartDrawing::set_dashes(size_t series) {
  constexpr double kDashes[] = {7, 3};
  if (look_of(series) >= std::size(kPalette)) cairo_set_dash(cairo_, kDashes, std::size(kDashes), 0);
}

}  // namespace adtrain
