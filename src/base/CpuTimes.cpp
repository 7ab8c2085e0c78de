#include "base/CpuTimes.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fstream>
#include <string>

#include <dirent.h>
#include <sys/resource.h>

namespace adtrain {
namespace {

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// By thread. A thread's file holds nanoseconds on a core, nanoseconds without one, and slices of time.
std::map<int64_t, double> seconds_without_core() {
  const std::string folder = "/proc/self/task";
  std::map<int64_t, double> seconds;
  DIR* const threads = opendir(folder.c_str());
  if (threads == nullptr) return seconds;
  while (const dirent* entry = readdir(threads)) {
    const std::string name = entry->d_name;
    int64_t thread = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), thread);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    std::ifstream file(folder + "/" + name + "/schedstat");
    double on_core = 0, without_core = 0;
    if (file >> on_core >> without_core) seconds[thread] = 1e-9 * without_core;
  }
  closedir(threads);
  return seconds;
}

}  // namespace

CpuTimes CpuTimes::now() {
  CpuTimes times;
  times.wall_ = seconds_of(CLOCK_MONOTONIC);
  times.on_core_ = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  times.without_core_ = seconds_without_core();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  times.pages_from_disk_ = usage.ru_majflt;
  return times;
}

CpuUse CpuTimes::until(const CpuTimes& later) const {
  CpuUse use;
  use.seconds = later.wall_ - wall_;
  use.on_core = later.on_core_ - on_core_;
  use.pages_from_disk = later.pages_from_disk_ - pages_from_disk_;
  for (const auto& [thread, seconds] : later.without_core_) {
    const auto before = without_core_.find(thread);
    const double since = seconds - (before == without_core_.end() ? 0 : before->second);
    use.without_core = std::max(use.without_core.value_or(0), since);
  }
  return use;
}

}  // namespace adtrain
