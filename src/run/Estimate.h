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

}  // namespace adtrain
