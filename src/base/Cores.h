#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace adtrain {

/// The number of cores that this process may use: those that it is bound to, and no more than its control
/// groups' quota (`docker --cpus`, a Kubernetes limit), rounded up. At least 1. Thread-safe.
int64_t usable_cores();

/// How many threads read or check a large file together: a core each, and at most eight, as no disk keeps
/// more busy.
size_t threads_for_files();

/// This process's quota from control groups of either version; nothing where they set no limit. `root`
/// contains /proc and /sys.
std::optional<int64_t> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace adtrain
