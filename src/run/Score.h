#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/Error.h"
#include "evaluation/scoring/ScoreShard.h"

namespace adtrain {

/// The command line of `adtrain score`.
struct ScoreRequest {
  std::filesystem::path target;        ///< as EvaluateRequest has it
  std::vector<std::string> histories;  ///< paths; empty: those of the run's configuration
  std::vector<std::string> overrides;
  ScoreShard shard;
  /// Only measures for so many seconds how fast it is: see MeasuredScoring.
  std::optional<double> measured_seconds;
  bool overwrite = false;
  bool json = false;
};

/// Scores histories as one rank of the group that the launcher started, and writes the scores to a folder
/// (write_scores): score_output_dir, or `scores/HISTORIES-step-N` in the run's folder; of a shard to
/// `part-I-of-N` in that folder. Returns kDone; where a signal stopped it, stop_code, and the folder
/// holds nothing new but an empty file `requeue`. Throws the Error family, also where the folder holds scores
/// that are not to be overwritten, before the work or by its end; where one of several ranks fails,
/// failure.txt is written there. Where it only measures, the folder gets a ScoringSpeed and no scores.
ExitCode score(const ScoreRequest& request);

/// The command line of `adtrain merge`.
struct MergeRequest {
  std::vector<std::filesystem::path> parts;  ///< folders of `adtrain score`
  std::filesystem::path output;
  bool overwrite = false;
  bool json = false;
};

/// Writes the scores of all parts to one folder. Throws as merged_scores and write_scores do, and ConfigError
/// where the folder holds scores that are not to be overwritten.
ExitCode merge(const MergeRequest& request);

}  // namespace adtrain
