#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "evaluation/scoring/ScoreTable.h"
#include "evaluation/scoring/ScoredWindows.h"

namespace adtrain {

/// Means over samples.
struct ScoreMeans {
  int64_t samples = 0;
  int64_t not_finite = 0;             ///< samples whose loss is NaN or infinite; the mean loss then is, too
  std::optional<double> loss;         ///< nothing without samples
  std::optional<double> accuracy;     ///< share of samples of rank 1; nothing of real actions alone
  std::optional<double> probability;  ///< of the actions that were taken; the same

  nlohmann::ordered_json to_json() const;
};

/// The figures of a table of scores. They are sums in the order of its rows: of the same rows, the same bits.
struct ScoreFigures {
  ScoreMeans all;
  std::optional<ScoreMeans> trained, held_out;                    ///< where there are tasks of both sides
  std::vector<std::pair<ScoredWindows::Task, ScoreMeans>> tasks;  ///< those that have samples, in their order

  static ScoreFigures of(const ScoreTable& table, const std::vector<ScoredWindows::Task>& tasks);
  nlohmann::ordered_json to_json() const;
  /// Aligned lines for people: a task each, at most `most_tasks` of them, then all together.
  std::vector<std::string> table(size_t most_tasks) const;
};

}  // namespace adtrain
