#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/formats/HistorySource.h"
#include "run/inspect/LearningProgress.h"
#include "telemetry/Console.h"

namespace adtrain {

/// A data set, and how its tasks learnt.
struct InspectedHistories {
  std::filesystem::path path;
  std::unique_ptr<HistorySource> source;
  std::vector<TaskProgress> tasks;  ///< those that were read

  /// Reads `count` tasks, evenly spread; 0: all. Shows its progress. Throws DataError where the path holds no
  /// histories, or damaged ones.
  static InspectedHistories of(const std::filesystem::path& path, std::optional<HistoryFormat> format,
                               int64_t count, Console& console);

  /// The names of tasks whose returns do not rise.
  std::vector<std::string> standing_still() const;
  /// Where NaN and infinities are.
  std::vector<std::string> not_finite() const;
  /// All that is known, for people and for programs.
  std::string text() const;
  nlohmann::ordered_json json() const;
};

}  // namespace adtrain
