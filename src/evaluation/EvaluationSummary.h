#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace adtrain {

/// Keys of summary.json that say what was found; all others say what was evaluated.
inline constexpr std::array<std::string_view, 6> kEvaluationResults = {
    "mean", "std", "last10_mean", "random_floor", "oracle", "normalized_score"};

/// What summary.json of an evaluation's folder says.
struct EvaluationSummary {
  std::filesystem::path folder;     ///< that it was read from
  std::string name;                 ///< of the folder
  nlohmann::ordered_json identity;  ///< what was evaluated: see evaluation_identity
  std::vector<double> mean;         ///< return by episode, mean over tasks and repeats
  double last10_mean = 0;
  std::optional<double> random_floor, oracle;  ///< where they are known

  /// Throws DataError where the folder holds no such file, or one that `adtrain evaluate` cannot have
  /// written.
  static EvaluationSummary read(const std::filesystem::path& folder);
};

}  // namespace adtrain
