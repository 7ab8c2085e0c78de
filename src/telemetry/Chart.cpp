#include "telemetry/Chart.h"

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>

#include <cairo-svg.h>
#include <cairo.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/File.h"
#include "telemetry/ChartDrawing.h"

namespace adtrain {
namespace {

constexpr double kPngScale = 2;  ///< for high-resolution screens

cairo_status_t append(void* bytes, const unsigned char* data, unsigned int length) {
  static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
}

using Surface = std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)>;

void draw_on(cairo_surface_t* surface, const Chart& chart, double scale) {
  const std::unique_ptr<cairo_t, decltype(&cairo_destroy)> cairo(cairo_create(surface), cairo_destroy);
  cairo_scale(cairo.get(), scale, scale);
  ChartDrawing(chart, cairo.get()).draw();
  if (const cairo_status_t status = cairo_status(cairo.get()); status != CAIRO_STATUS_SUCCESS) {
    throw Error(ExitCode::kUnexpected,
                fmt::format("cairo cannot draw '{}': {}", chart.title, cairo_status_to_string(status)));
  }
}

std::string svg_bytes(const Chart& chart) {
  std::string bytes;
  const Surface surface(
      cairo_svg_surface_create_for_stream(append, &bytes, ChartDrawing::kWidth, ChartDrawing::kHeight),
      cairo_surface_destroy);
  draw_on(surface.get(), chart, 1);
  cairo_surface_finish(surface.get());
  return bytes;
}

std::string png_bytes(const Chart& chart) {
  const auto pixels = [](double points) { return static_cast<int>(points * kPngScale); };
  std::string bytes;
  const Surface surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, pixels(ChartDrawing::kWidth),
                                                   pixels(ChartDrawing::kHeight)),
                        cairo_surface_destroy);
  draw_on(surface.get(), chart, kPngScale);
  cairo_surface_write_to_png_stream(surface.get(), append, &bytes);
  return bytes;
}

}  // namespace

void Chart::draw(const std::filesystem::path& path) const {
  if (path.extension() != ".svg" && path.extension() != ".png") {
    throw std::invalid_argument(fmt::format("charts are .svg or .png, not '{}'", path.string()));
  }
  write_file_atomically(path, path.extension() == ".svg" ? svg_bytes(*this) : png_bytes(*this));
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
