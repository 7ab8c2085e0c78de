#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/Error.h"
#include "run/RunConfig.h"

namespace adtrain {

/// What `adtrain estimate` is asked for.
struct EstimateRequest {
  std::vector<std::filesystem::path> configs;  ///< one, or of a table several
  std::vector<std::string> overrides;
  std::vector<int64_t> gpus = {1, 2, 4, 8};       ///< numbers of ranks
  std::vector<double> memory_gb = {40, 80, 141};  ///< of one GPU, decimal
  bool table = false;  ///< of scoring: what it takes of `gpus`, by the type of weights
  bool json = false;
};

/// Prints what training takes of each GPU's memory, without a GPU: by parts, over precisions and numbers of
/// GPUs, and the largest batch that fits; where device_map and max_memory are set, what goes where in scoring
/// and evaluation. Or a table of what scoring takes, in Markdown: see scoring_memory_table. Throws
/// ConfigError.
ExitCode estimate(const EstimateRequest& request);

/// A heading, and for each model and each type of its weights a line: GB (decimal) of the weights, and of the
/// fullest of so many GPUs with a pass of score_batch windows; of one window where that is auto. Names are
/// those of runs. Throws as ScoringMemory does.
std::string scoring_memory_table(const std::vector<RunConfig>& configs, const std::vector<int64_t>& gpus);

}  // namespace adtrain
