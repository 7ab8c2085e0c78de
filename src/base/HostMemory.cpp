#include "base/HostMemory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace adtrain {
namespace {

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

int64_t of_kernel() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    int64_t kibibytes = 0;
    if (name == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

/// Where this process's control group lies; "" where there is none of version 2.
std::string control_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  }
  return "";
}

}  // namespace

int64_t available_host_memory() {
  int64_t available = of_kernel();
  const std::string group = control_group();
  const auto limit = number_in(group + "/memory.max"), taken = number_in(group + "/memory.current");
  if (limit && taken) available = std::min(available, std::max<int64_t>(0, *limit - *taken));
  return available;
}

}  // namespace adtrain
