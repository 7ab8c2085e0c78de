#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "run/RunConfig.h"

namespace adtrain {

/// What `adtrain validate` says of own tasks and their histories.
struct OwnTasksReport {
  std::vector<std::string> lines;    ///< their spaces, tasks and windows, for people
  std::vector<std::string> notices;  ///< of tasks whose returns do not rise
  nlohmann::json json;

  /// Puts the spaces of the histories into the configuration. Counts windows without reading data, unless
  /// episodes are left out. Returns are read of a few tasks alone. Nothing where the configuration has a
  /// family's tasks, or its histories are not collected yet. Throws as OwnHistories and ColumnWindowIndex do.
  static std::optional<OwnTasksReport> of(RunConfig& config);
};

}  // namespace adtrain
