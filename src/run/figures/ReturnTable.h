#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "run/figures/Figure.h"

namespace adtrain {

/// The in-context returns of several runs in figures: a row for each line of their figure.
struct ReturnTable {
  struct Row {
    std::string label;
    std::vector<std::string> runs;
    MeanOverSeeds first_episode, last_ten;
  };
  Interval interval = Interval::kStandardError;
  std::vector<Row> rows;
  size_t best = 0;  ///< the row whose mean over the last ten episodes is highest

  /// Throws as Figure::of does. At least one run.
  static ReturnTable of(const std::vector<RecordedRun>& runs, const FigureContent& content);

  /// Aligned columns, then which row is best.
  std::string text() const;
  std::string csv() const;
  nlohmann::ordered_json json() const;
};

}  // namespace adtrain
