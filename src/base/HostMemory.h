#pragma once

#include <cstdint>

namespace adtrain {

/// Bytes of this host's memory that processes can still take: by the kernel's estimate, and within the limit
/// of this process's control group (version 2), where pages that only cache files count as taken.
/// Thread-safe.
int64_t available_host_memory();

}  // namespace adtrain
