#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/HistorySet.h"
#include "run/RunConfig.h"

namespace adtrain {

/// Loads the histories of some tasks, of the file that the configuration names. Throws DataError: there is
/// none, it was collected with other settings than the configuration's, or what HistorySet::load finds.
HistorySet load_histories(const RunConfig& config, const std::vector<int64_t>& tasks, int64_t streams);

/// What a checkpoint's histories are known by: the file's own checksum, which is the same for every split and
/// number of streams; of a file without one, the digest of what was loaded.
std::string identity_of(const HistorySet& histories);

}  // namespace adtrain
