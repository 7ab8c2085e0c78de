#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/HistorySet.h"
#include "run/RunConfig.h"

namespace adtrain {

/// Loads the histories of some tasks from the file that the configuration names. Throws DataError where there
/// is no such file or it was collected with other settings than the configuration's, and as HistorySet::load
/// does.
HistorySet load_histories(const RunConfig& config, const std::vector<int64_t>& tasks, int64_t streams);

/// Identifies a checkpoint's histories: the file's own checksum, which is the same for every split and number
/// of streams; for a file without one, the digest of what was loaded.
std::string identity_of(const HistorySet& histories);

}  // namespace adtrain
