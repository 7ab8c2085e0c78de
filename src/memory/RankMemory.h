#pragma once

#include <cstdint>
#include <vector>

#include "collectives/Communicator.h"
#include "memory/MemorySplit.h"

namespace adtrain {

/// Bytes in use on one rank's device, by all processes; on the CPU what the rank's process has resident.
struct RankMemory {
  int64_t start = 0;    ///< before the first step of this start of the run
  int64_t peak = 0;     ///< the most since then
  int64_t current = 0;  ///< now
  MemorySplit split;    ///< of `current`
};

/// Every rank's, in the order of ranks. Collective.
std::vector<RankMemory> gather_memory(Communicator& communicator, const RankMemory& mine);

}  // namespace adtrain
