#include "base/Cores.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <sched.h>

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// Cores of one group. Version 2 has "200000 100000" or "max 100000" in cpu.max, version 1 a file each for
/// the quota, which is -1 where there is none, and the period.
std::optional<double> quota_of_group(const fs::path& group) {
  double quota = 0, period = 0;
  if (std::ifstream both(group / "cpu.max"); both) {
    both >> quota >> period;  // fails for "max", which is not a number
    return both && quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
  }
  std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
  quota_file >> quota;
  period_file >> period;
  return quota_file && period_file && quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

/// The path after the second colon of a line of /proc/self/cgroup: "0::/user.slice" or "4:cpu,cpuacct:/".
/// Nothing where the line's controllers do not limit CPU time.
std::optional<std::string> group_of(const std::string& line) {
  const size_t first = line.find(':');
  const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
  if (second == std::string::npos) return std::nullopt;
  const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
  if (controllers != ",," && controllers.find(",cpu,") == std::string::npos) return std::nullopt;
  return line.substr(second + 1);
}

}  // namespace

std::optional<int64_t> cpu_quota(const fs::path& root) {
  const fs::path mounted = root / "sys/fs/cgroup";
  std::optional<double> least;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::optional<std::string> name = group_of(line);
    if (!name) continue;
    for (const char* hierarchy : {"", "unified", "cpu", "cpu,cpuacct"}) {
      // Each parent group may set a limit too. A container may see its group's name, but only its own files.
      for (fs::path group = fs::path(*name).relative_path();; group = group.parent_path()) {
        if (const auto quota = quota_of_group(mounted / hierarchy / group)) {
          least = std::min(*quota, least.value_or(*quota));
        }
        if (group.empty()) break;
      }
    }
  }
  if (!least) return std::nullopt;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(std::min(*least, 1e6))));
}

int64_t usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const int64_t bound_to = known ? std::max(1, CPU_COUNT(&allowed)) : 1;
  return std::min(bound_to, cpu_quota().value_or(bound_to));
}

size_t threads_for_files() {
  return static_cast<size_t>(std::min<int64_t>(usable_cores(), 8));
}

}  // namespace adtrain
