#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "run/RunConfig.h"

namespace adtrain {

/// A heading, and for each model and each type of its weights a line: GB (decimal) of the weights, and of the
/// fullest of so many GPUs with a pass of score_batch windows; of one window where that is auto. Names are
/// those of runs. Throws as ScoringMemory does.
std::string scoring_memory_table(const std::vector<RunConfig>& configs, const std::vector<int64_t>& gpus);
/// The same in bytes, a member for each model.
nlohmann::ordered_json scoring_memory_json(const std::vector<RunConfig>& configs,
                                           const std::vector<int64_t>& gpus);

}  // namespace adtrain
