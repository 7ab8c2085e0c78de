#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace adtrain {

/// Which of the GPUs that it sees a rank takes, as their numbers on it, where every rank spreads a network
/// over several. `seen`: by rank, the identities (Gpu::uuid) of those that it sees. Launchers make all GPUs
/// of a host visible to every rank, of which each takes an equal share in the order of ranks, or its own to
/// each, which it takes all. Throws EnvironmentError where ranks see some GPUs in common and others not, or
/// there are fewer GPUs than ranks.
std::vector<int> gpus_of_rank(const std::vector<std::vector<std::string>>& seen, size_t rank);

}  // namespace adtrain
