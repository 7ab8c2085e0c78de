#include "telemetry/Chart.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/File.h"
#include "telemetry/ChartDrawing.h"

namespace adtrain {
namespace {

cairo_status_t append(void* bytes, const unsigned char* data, unsigned int length) {
  static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
}

using Surface = std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)>;

/// `scale` is the surface's units in a point.
void draw_on(cairo_surface_t* surface, const Chart& chart, double scale) {
  const std::unique_ptr<cairo_t, decltype(&cairo_destroy)> cairo(cairo_create(surface), cairo_destroy);
  cairo_scale(cairo.get(), scale * chart.page.zoom, scale * chart.page.zoom);
  ChartDrawing(chart, cairo.get()).draw();
  if (const cairo_status_t status = cairo_status(cairo.get()); status != CAIRO_STATUS_SUCCESS) {
    throw Error(ExitCode::kUnexpected,
                fmt::format("cairo cannot draw '{}': {}", chart.title, cairo_status_to_string(status)));
  }
}

std::string escaped(std::string_view text) {
  std::string xml;
  for (const char letter : text) {
    xml += letter == '&' ? "&amp;" : letter == '<' ? "&lt;" : letter == '>' ? "&gt;" : std::string(1, letter);
  }
  return xml;
}

/// cairo draws text as outlines. What is named in the chart is said once more in words, for programs that
/// search in it or read it aloud.
std::string in_words(const Chart& chart) {
  std::string names;
  for (const Series& series : chart.series) {
    if (!series.faint && !series.name.empty()) names += (names.empty() ? "" : "; ") + series.name;
    for (size_t i = 0; i < chart.bars.size(); ++i) {
      const std::optional<double> value = ChartDrawing::bar_at(series, i);
      if (value)
        names += fmt::format("{}{} {}", names.empty() ? "" : "; ", chart.bars[i],
                             ChartDrawing::text_of_bar(*value));
    }
  }
  for (const Reference& reference : chart.references)
    names += (names.empty() ? "" : "; ") + ChartDrawing::label_of(reference);
  const std::string title =
      chart.title.empty() ? "" : fmt::format("\n<title>{}</title>", escaped(chart.title));
  const std::string over = chart.x_label.empty() ? "" : " over " + chart.x_label;
  return title +
         fmt::format("\n<desc>{}{}: {}</desc>", escaped(chart.y_label), escaped(over), escaped(names));
}

std::string svg_bytes(const Chart& chart) {
  std::string bytes;
  const Surface surface(
      cairo_svg_surface_create_for_stream(append, &bytes, chart.page.width, chart.page.height),
      cairo_surface_destroy);
  draw_on(surface.get(), chart, 1);
  cairo_surface_finish(surface.get());
  const size_t element = bytes.find("<svg"), end = bytes.find('>', element);
  if (end != std::string::npos) bytes.insert(end + 1, in_words(chart));
  return bytes;
}

std::string pdf_bytes(const Chart& chart) {
  std::string bytes;
  const Surface surface(
      cairo_pdf_surface_create_for_stream(append, &bytes, chart.page.width, chart.page.height),
      cairo_surface_destroy);
  cairo_pdf_surface_set_metadata(surface.get(), CAIRO_PDF_METADATA_TITLE, chart.title.c_str());
  draw_on(surface.get(), chart, 1);
  cairo_surface_finish(surface.get());
  return bytes;
}

std::string png_bytes(const Chart& chart) {
  const auto pixels = [&chart](double points) {
    return static_cast<int>(std::lround(points * chart.page.pixels_a_point));
  };
  std::string bytes;
  const Surface surface(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, pixels(chart.page.width), pixels(chart.page.height)),
      cairo_surface_destroy);
  draw_on(surface.get(), chart, chart.page.pixels_a_point);
  cairo_surface_write_to_png_stream(surface.get(), append, &bytes);
  return bytes;
}

struct Format {
  const char* extension;
  std::string (*bytes)(const Chart& chart);
};
constexpr Format kFormats[] = {{".svg", svg_bytes}, {".pdf", pdf_bytes}, {".png", png_bytes}};

const Format* format_of(const std::filesystem::path& path) {
  const auto* const found = std::ranges::find_if(
      kFormats,
      [extension = path.extension()](const Format& format) { return extension == format.extension; });
  return found == std::end(kFormats) ? nullptr : found;
}

}  // namespace

Band Band::around(const std::vector<double>& middle, const std::vector<double>& half_width) {
  Band band;
  for (size_t i = 0; i < middle.size(); ++i) {
    band.low.push_back(middle[i] - half_width[i]);
    band.high.push_back(middle[i] + half_width[i]);
  }
  return band;
}

bool Chart::can_draw(const std::filesystem::path& path) {
  return format_of(path) != nullptr;
}

void Chart::draw(const std::filesystem::path& path) const {
  const Format* const format = format_of(path);
  if (format == nullptr) {
    throw std::invalid_argument(fmt::format("charts are .svg, .pdf or .png, not '{}'", path.string()));
  }
  write_file_atomically(path, format->bytes(*this));
}

std::vector<double> smoothed(const std::vector<double>& values, double weight) {
  const size_t count = values.size();
  std::vector<double> sum(count), mass(count);
  const auto counts = [&](size_t i) { return std::isfinite(values[i]); };
  // Sums the left neighbours and the value itself, then the right neighbours.
  double past_sum = 0, past_mass = 0;
  for (size_t i = 0; i < count; ++i) {
    past_sum = weight * past_sum + (counts(i) ? values[i] : 0);
    past_mass = weight * past_mass + (counts(i) ? 1 : 0);
    sum[i] = past_sum;
    mass[i] = past_mass;
  }
  double next_sum = 0, next_mass = 0;
  for (size_t i = count; i-- > 0;) {
    sum[i] += weight * next_sum;
    mass[i] += weight * next_mass;
    next_sum = weight * next_sum + (counts(i) ? values[i] : 0);
    next_mass = weight * next_mass + (counts(i) ? 1 : 0);
  }
  std::vector<double> result(count);
  for (size_t i = 0; i < count; ++i) result[i] = mass[i] > 0 ? sum[i] / mass[i] : values[i];
  return result;
}

}  // namespace adtrain
