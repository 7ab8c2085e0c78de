#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/CpuTimes.h"
#include "base/Nvml.h"
#include "parallel/SlowRanks.h"

namespace adtrain {

/// Why a rank is slow, as far as it can be seen there.
enum class SlowCause {
  kData,       ///< it waits for batches
  kWriting,    ///< it writes checkpoints and figures
  kCores,      ///< others take the host's cores
  kPaging,     ///< its memory comes back from disk
  kPaused,     ///< its process sleeps or is stopped
  kGpuClock,   ///< its GPU's clocks are held down
  kGpuShared,  ///< another process computes on its GPU
  kUnknown,
};

/// As metrics.jsonl has it: "data", "writing", "cores", "paging", "paused", "gpu_clock", "gpu_shared",
/// "unknown".
const char* name_of(SlowCause cause);

/// What a slow rank sees of itself.
struct SlowRankEvidence {
  std::string host;
  CpuUse cpu;           ///< since it has been under suspicion
  double load = 0;      ///< of the host: processes that run or want to, mean of the last minute
  int64_t cores = 0;    ///< of the host
  bool on_gpu = false;  ///< whether it computes on one
  std::optional<GpuState> gpu;
  OtherGpuProcesses others_on_gpu;
  /// MHz, of the other ranks' GPUs where those are known.
  std::vector<int64_t> other_clocks;
};

struct SlowCauseFound {
  SlowCause cause = SlowCause::kUnknown;
  std::string text;  ///< what was seen, and what to do
};

/// `times`: of all ranks, of which the evidence is `rank`'s. `lost_share`: see PaceFinding.
SlowCauseFound find_cause(const std::vector<RankTimes>& times, size_t rank, double lost_share,
                          const SlowRankEvidence& evidence);

}  // namespace adtrain
