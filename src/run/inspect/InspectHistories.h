#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/Error.h"
#include "data/formats/HistorySource.h"

namespace adtrain {

/// The command line of `adtrain inspect histories`.
struct InspectRequest {
  std::vector<std::filesystem::path> paths;  ///< data sets: files, folders or lists, in any format
  std::filesystem::path list_folder;         ///< to which paths in lists of tasks are relative
  std::optional<HistoryFormat> format;       ///< nothing: recognised
  int64_t tasks = 0;                         ///< how many of each to read, evenly spread; 0: all
  std::vector<std::filesystem::path> outs;   ///< drawings
  bool json = false;
};

/// Prints what each data set holds, and how its tasks learnt: spaces, columns, tasks, steps, episodes, mean
/// returns at the beginning and at the end of learning, tasks that stand still, values that are no numbers;
/// and draws the mean return over the course of learning. Throws DataError where a path holds no histories,
/// or damaged ones, ConfigError for a drawing of an unknown format, and EnvironmentError where it cannot be
/// written.
ExitCode inspect_histories(const InspectRequest& request);

}  // namespace adtrain
