#include "placement/GpuShare.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/Error.h"

namespace adtrain {

std::vector<int> gpus_of_rank(const std::vector<std::vector<std::string>>& seen, size_t rank) {
  const std::vector<std::string>& mine = seen[rank];
  size_t place = 0, sharing = 0;
  for (size_t other = 0; other < seen.size(); ++other) {
    const bool equal = seen[other] == mine;
    if (equal && other < rank) ++place;
    sharing += equal ? 1 : 0;
    const bool common = std::ranges::any_of(
        seen[other], [&](const std::string& gpu) { return std::ranges::find(mine, gpu) != mine.end(); });
    if (equal || !common) continue;
    throw EnvironmentError(fmt::format(
        "device_map: ranks {} and {} see some GPUs in common and others not; expected the same GPUs of a "
        "host for every rank, of which each takes a share, or GPUs of its own for each "
        "(CUDA_VISIBLE_DEVICES)",
        std::min(rank, other), std::max(rank, other)));
  }
  if (mine.size() < sharing) {
    throw EnvironmentError(
        fmt::format("device_map: {} ranks share {} GPU{}; expected one at least for each: start fewer ranks, "
                    "show them more "
                    "GPUs, or set device: cpu",
                    sharing, mine.size(), mine.size() == 1 ? "" : "s"));
  }
  std::vector<int> share;
  for (size_t gpu = place * mine.size() / sharing; gpu < (place + 1) * mine.size() / sharing; ++gpu)
    share.push_back(static_cast<int>(gpu));
  return share;
}

}  // namespace adtrain
