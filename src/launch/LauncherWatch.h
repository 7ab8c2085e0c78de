#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "base/ProcessDescriptor.h"
#include "launch/LaunchContext.h"

namespace adtrain {

/// Detects that the launcher of this rank has ended without ending its ranks, as a killed one does. Nobody
/// would then learn how the ranks end, and they would keep their GPUs. This rank then requests a stop
/// (SIGUSR1 to itself), after which all ranks save and leave together. After `leave_within_seconds` it ends
/// in any case, with kEnvironment. It says so, and what to do `to_go_on`. A process that no launcher has
/// started is not watched.
class LauncherWatch {
 public:
  LauncherWatch(const LaunchContext& context, double leave_within_seconds, std::string to_go_on);
  ~LauncherWatch();
  LauncherWatch(const LauncherWatch&) = delete;
  LauncherWatch& operator=(const LauncherWatch&) = delete;

 private:
  void run() const;
  bool gone() const;

  std::string who_;
  std::string launcher_name_;
  double leave_within_seconds_;
  std::string to_go_on_;
  std::optional<int64_t> launcher_;  ///< absent: nothing to watch
  uint64_t started_ = 0;
  ProcessDescriptor process_;
  int wake_ = -1;  ///< an eventfd
  std::thread thread_;
};

}  // namespace adtrain
