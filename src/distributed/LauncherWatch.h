#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "distributed/LaunchContext.h"

namespace adtrain {

/// Notices that the launcher of this rank is gone and has left its ranks behind, as a killed one does: nobody
/// would hear how they end, and they would keep their GPUs. This rank then asks for a stop (SIGUSR1 to
/// itself), upon which all ranks save and leave together, and after `leave_within_seconds` it ends in any
/// case, with kEnvironment. A process that no launcher has started is nobody's, however it goes on.
class LauncherWatch {
 public:
  LauncherWatch(const LaunchContext& context, double leave_within_seconds);
  ~LauncherWatch();
  LauncherWatch(const LauncherWatch&) = delete;
  LauncherWatch& operator=(const LauncherWatch&) = delete;

 private:
  void run() const;
  bool gone() const;

  std::string who_;
  std::string launcher_name_;
  double leave_within_seconds_;
  std::optional<int64_t> launcher_;  ///< nothing to watch without
  uint64_t started_ = 0;
  int process_ = -1;  ///< a pidfd; −1 where the system has none
  int wake_ = -1;     ///< an eventfd
  std::thread thread_;
};

}  // namespace adtrain
