#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "run/throughput/ScoringSpeed.h"
#include "run/throughput/ThroughputRows.h"
#include "telemetry/Chart.h"

namespace adtrain {

/// What came of a row.
struct ThroughputResult {
  ThroughputRow row;
  std::optional<ScoringSpeed> speed;  ///< nothing where it was not measured
  std::string because;                ///< why it was not
  bool failed = false;                ///< it was tried
};

/// The rows of a table as far as they are measured. Speed-ups are against the row "sequential", and are
/// absent where that is.
struct ThroughputTable {
  std::string run;                          ///< for people: "step 4000 of runs/quickstart"
  std::vector<std::string> histories = {};  ///< that are scored; the run's own where there are none
  std::vector<std::string> settings = {};   ///< key=value, of all rows
  double seconds = 0;                       ///< that each row is measured for
  std::vector<ThroughputResult> results;

  /// Samples a second over those of "sequential".
  std::optional<double> speed_up(const ThroughputResult& result) const;
  /// Aligned columns with a heading; below them why rows were not measured.
  std::vector<std::string> lines() const;
  nlohmann::ordered_json json() const;
  /// A bar for each row that is measured.
  Chart chart() const;
};

}  // namespace adtrain
