#pragma once

#include <filesystem>
#include <vector>

#include "evaluation/scoring/ScoreFolder.h"

namespace adtrain {

/// The parts of a scoring as one: what a single process would have written, but for the seconds, which are
/// those of the slowest part. Parts may be given in any order, and need not be of one number of shards.
/// Throws DataError, which names the folder at fault, where one cannot be read, where parts are of other
/// weights, histories, tasks or settings than the first, where two have the same samples, and where samples
/// are missing: it says which, and the shards that have them.
Scores merged_scores(const std::vector<std::filesystem::path>& parts);

}  // namespace adtrain
