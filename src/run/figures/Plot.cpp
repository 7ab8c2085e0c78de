#include "run/figures/Plot.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/File.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "telemetry/Chart.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr double kPointsOfInch = 72, kDotsOfInch = 300;
/// Ticks are then of 8.5 points and lines 1.6 points wide: for a figure that a paper shows at its size.
constexpr double kPaperZoom = 0.65;

bool holds_numbers(const fs::path& out) {
  return out.extension() == ".csv" || out.extension() == ".json";
}

void check_outs(const PlotRequest& request) {
  if (request.outs.empty() && !request.json) {
    throw ConfigError("--out is missing; expected a file to draw, such as --out figure.pdf");
  }
  for (const fs::path& out : request.outs) {
    if (Chart::can_draw(out) || holds_numbers(out)) continue;
    throw ConfigError(
        fmt::format("--out: found '{}'; expected a name that ends in .pdf, .svg or .png for a drawing, or "
                    "in .csv or .json for its numbers",
                    abridged(out.string())));
  }
}

std::vector<RecordedRun> open_all(const std::vector<fs::path>& folders) {
  std::vector<RecordedRun> runs;
  std::set<fs::path> seen;
  for (const fs::path& folder : folders) {
    runs.push_back(RecordedRun::open(folder));
    if (!seen.insert(fs::canonical(runs.back().folder.root)).second) {
      throw ConfigError(
          fmt::format("{} is given twice; expected each run once, since a repetition would make "
                      "the interval too narrow",
                      runs.back().name));
    }
  }
  return runs;
}

Chart chart_of(const Figure& figure, const FigureStyle& style) {
  Chart chart = figure.chart();
  constexpr size_t kMostBytes = 1000;  // of a text that is drawn
  chart.title = abridged(style.title, kMostBytes);
  chart.x_label = abridged(style.x_label.value_or(chart.x_label), kMostBytes);
  chart.y_label = abridged(style.y_label.value_or(chart.y_label), kMostBytes);
  chart.log_y = style.log_y;
  chart.page = {.width = style.width_inches * kPointsOfInch,
                .height = style.height_inches * kPointsOfInch,
                .zoom = kPaperZoom,
                .pixels_a_point = kDotsOfInch / kPointsOfInch};
  return chart;
}

/// A line for each group: what the legend says, its last value, and its runs.
std::string text_of(const Figure& figure) {
  std::string text = fmt::format("{} over {}: {}\n", figure.y_label, figure.x_label, figure.statistics());
  size_t widest = 0;
  const char* const unit = figure.what == FigureContent::kReturns ? "episode" : "step";
  for (const FigureLine& line : figure.lines) widest = std::max(widest, figure.legend_of(line).size());
  for (const FigureLine& line : figure.lines) {
    const MeanOverSeeds& last = line.y.back();
    const std::string interval =
        last.low < last.high ? fmt::format(" [{:.4g}, {:.4g}]", last.low, last.high) : "";
    text += fmt::format("  {:<{}}  at {} {}: {:.4g}{}  {}\n", figure.legend_of(line), widest, unit,
                        grouped(line.x.back()), last.mean, interval, join(line.runs, " "));
  }
  for (const Reference& reference : figure.references)
    text += fmt::format("  {} {:.4g}\n", reference.name, reference.y);
  if (!figure.evaluations.empty()) text += fmt::format("  of {}\n", join(figure.evaluations, ", "));
  for (const std::string& notice : figure.notices) text += fmt::format("notice: {}\n", notice);
  return text;
}

}  // namespace

void write_figure(const Figure& figure, const FigureStyle& style, const std::vector<fs::path>& outs) {
  const Chart chart = chart_of(figure, style);
  for (const fs::path& out : outs) {
    if (out.extension() == ".csv") {
      write_file_atomically(out, figure.csv());
    } else if (out.extension() == ".json") {
      write_file_atomically(out, figure.json().dump(2) + "\n");
    } else {
      chart.draw(out);
    }
  }
}

ExitCode plot(const PlotRequest& request) {
  check_outs(request);
  const Figure figure = Figure::of(open_all(request.runs), request.content);
  try {
    write_figure(figure, request.style, request.outs);
  } catch (const fs::filesystem_error& error) {
    throw EnvironmentError(fmt::format("{}; --out: choose a folder that can be written", error.what()));
  }
  std::string written;
  for (const fs::path& out : request.outs) written += fmt::format("written: {}\n", out.string());
  print_answer(request.json ? figure.json().dump(2) + "\n" : text_of(figure) + written);
  return ExitCode::kDone;
}

}  // namespace adtrain
