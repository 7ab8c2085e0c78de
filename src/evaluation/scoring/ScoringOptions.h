#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/Section.h"
#include "environments/EnvironmentOptions.h"

namespace adtrain {

/// Which windows of histories `adtrain score` shows to a trained model, and how many at once.
struct ScoringOptions {
  /// A side of the split (test, train or all), or numbers of tasks, as TaskOptions has them.
  std::string score_tasks = "test";
  int64_t score_stride = 1;
  std::optional<int64_t> score_max_samples;
  int64_t score_batch = 0;  ///< kAutoBatchSize: see automatic_score_batch
  std::optional<std::string> score_output_dir;

  void declare(Section& section);
  void check(Findings& findings, const EnvironmentOptions& environment) const;
};

/// Assignments "key=value" with the keys that the guides to scoring have, max_samples, batch_size and
/// output_dir, under the names that they have here. In a configuration file batch_size is PPO's.
std::vector<std::string> with_names_of_scoring(std::vector<std::string> assignments);

}  // namespace adtrain
