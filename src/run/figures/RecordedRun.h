#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "evaluation/EvaluationSummary.h"
#include "run/ConfigChanges.h"
#include "run/RunFolder.h"
#include "telemetry/MetricsFile.h"

namespace adtrain {

/// The folders with results of an evaluation, in any order: those in `evaluation`, and `evaluation` itself
/// and those beside it, where an earlier adtrain put them.
std::vector<std::filesystem::path> evaluation_folders(const RunFolder& folder);

/// What a run has left in its folder, to be read: nothing here writes, and the run may still train.
struct RecordedRun {
  std::string name;  ///< the folder as the user named it, without a slash at its end; for messages
  RunFolder folder;
  std::vector<ConfigValue> config;

  /// Throws ConfigError where the folder is not a run's.
  static RecordedRun open(std::filesystem::path root);

  /// Throws DataError where there is no metrics.jsonl.
  std::map<std::string, Curve> metrics() const;
  /// The names of its evaluation_folders, sorted.
  std::vector<std::string> evaluations() const;
  /// The results in the folder of that name; `latest`: the newest ones, which the link of that name tells.
  /// Throws DataError that says what to do where there are none.
  EvaluationSummary evaluation(const std::string& evaluation) const;

 private:
  /// Which of these is the newest; `latest` where nothing tells.
  std::string newest_of(const std::vector<std::string>& found) const;
};

}  // namespace adtrain
