#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/Error.h"
#include "run/figures/Figure.h"

namespace adtrain {

/// How a figure is drawn.
struct FigureStyle {
  std::string title;
  std::optional<std::string> x_label, y_label;  ///< otherwise they follow from what is drawn
  double width_inches = 5.5, height_inches = 3.4;
  bool log_y = false;
};

/// Writes a figure to each of these files: .pdf, .svg or .png are drawn, .csv or .json hold the numbers.
/// Throws std::filesystem::filesystem_error.
void write_figure(const Figure& figure, const FigureStyle& style,
                  const std::vector<std::filesystem::path>& outs);

/// The command line of `adtrain plot`.
struct PlotRequest {
  std::vector<std::filesystem::path> runs;
  std::vector<std::filesystem::path> outs;  ///< as for write_figure
  FigureContent content;
  FigureStyle style;
  bool json = false;
};

/// Draws several runs in one picture. Prints what the picture shows, or the numbers as JSON. Returns kDone.
/// Throws ConfigError where a folder is no run or a file's type is unknown, DataError where a run does not
/// hold what is to be drawn, EnvironmentError where a file cannot be written.
ExitCode plot(const PlotRequest& request);

}  // namespace adtrain
