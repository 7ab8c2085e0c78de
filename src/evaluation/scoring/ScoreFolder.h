#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "evaluation/scoring/ScoreFigures.h"
#include "evaluation/scoring/ScoreShard.h"
#include "evaluation/scoring/ScoreTable.h"
#include "evaluation/scoring/ScoredWindows.h"

namespace adtrain {

/// The scores of all samples, or of a part of them, and what they are of.
struct Scores {
  /// What was scored, and how: weights, histories, settings, key by key. Scores with another one are of
  /// something else, and so are their bits.
  nlohmann::ordered_json scored;
  std::string histories;                   ///< for people: where they were
  std::vector<ScoredWindows::Task> tasks;  ///< those that have samples here, and maybe others
  int64_t windows = 0;                     ///< that there are
  int64_t total = 0;                       ///< samples of all parts together
  ScoreShard shard;
  NumberSpan places;  ///< of these samples among all
  ScoreTable table{ScoreTable::Layout()};
  double seconds = 0;

  /// The content of summary.json: `scored`, which part of it this is, and the figures.
  nlohmann::ordered_json summary() const;
  ScoreFigures figures() const { return ScoreFigures::of(table, tasks); }
};

/// Whether a folder holds scores, or some of their files.
bool holds_scores(const std::filesystem::path& folder);
/// Throws ConfigError where the folder holds scores, unless they are to be overwritten.
void refuse_to_overwrite(const std::filesystem::path& folder, bool overwrite);

/// Writes the files of a folder of scores, the summary last, so that the others are complete where it is:
///
///     scores.npy    ScoreTable::npy
///     scores.csv    ScoreTable::csv
///     summary.json  Scores::summary, with the checksum of scores.npy
///
/// They take the place of older ones only when all of them are on the disk: one that is full costs no
/// results. Throws std::filesystem::filesystem_error where the folder cannot be written, and ConfigError
/// where it holds scores by then, those of another process, unless they are to be overwritten.
void write_scores(const std::filesystem::path& folder, const Scores& scores, bool overwrite);
/// Reads what write_scores has written. Throws DataError, which names the file, where it is missing, damaged
/// or incomplete.
Scores read_scores(const std::filesystem::path& folder);

}  // namespace adtrain
