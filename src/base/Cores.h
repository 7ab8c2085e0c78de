#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace adtrain {

/// The cores whose time this process may use: those that it is bound to, and no more than its control groups
/// grant (`docker --cpus`, a Kubernetes limit), rounded up. At least 1. Thread-safe.
int64_t usable_cores();

/// What control groups of either version grant this process alone; nothing where they set no limit. `root` is
/// where /proc and /sys are found.
std::optional<int64_t> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace adtrain
