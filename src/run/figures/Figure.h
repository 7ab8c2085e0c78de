#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "evaluation/EvaluationFolder.h"
#include "run/figures/RecordedRun.h"
#include "run/figures/RunGroups.h"
#include "run/figures/SeedStatistics.h"
#include "telemetry/Chart.h"

namespace adtrain {

/// What a figure shows of each run.
struct FigureContent {
  static constexpr const char* kReturns = "returns";

  std::string what = kReturns;                 ///< that, or the name of a figure in metrics.jsonl
  std::string evaluation = kLatestEvaluation;  ///< for returns: the evaluation's name
  Interval interval = Interval::kStandardError;
  double smooth = 0;              ///< weight of a neighbour, as in `smoothed`; of each run's own curve
  std::vector<std::string> over;  ///< keys that count as repetitions, besides those of `only_repeats`
  bool each = false;              ///< every run is a group of its own
};

/// The groups of which a figure's lines are the means.
std::vector<RunGroup> groups_of(const std::vector<RecordedRun>& runs, const FigureContent& content);
/// A text as one field of CSV.
std::string csv_text(std::string text);

/// A line of a figure: the mean over the runs of a group, and its interval.
struct FigureLine {
  std::string label;              ///< without the number of runs
  std::vector<std::string> runs;  ///< their folders
  std::vector<int64_t> x;
  std::vector<MeanOverSeeds> y;
};

/// Several runs in one picture: the numbers, from which it is drawn.
struct Figure {
  std::string what;
  Interval interval = Interval::kStandardError;
  std::string x_label, y_label;
  std::vector<FigureLine> lines;
  std::vector<Reference> references;
  std::vector<std::string> evaluations;  ///< for returns: the names of those that are shown, sorted
  std::vector<std::string> notices;      ///< what a reader of the figure has to know

  /// Throws ConfigError or DataError where a run does not hold what is asked for.
  static Figure of(const std::vector<RecordedRun>& runs, const FigureContent& content);

  /// Whether no line is a mean.
  bool shows_single_runs() const;
  /// The label with the number of runs: "lr 0.003 (n = 5)".
  std::string legend_of(const FigureLine& line) const;
  /// "mean and standard error over runs": what lines and bands are.
  std::string statistics() const;
  Chart chart() const;
  nlohmann::ordered_json json() const;
  /// One row for each point of each line.
  std::string csv() const;
};

}  // namespace adtrain
