#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/Error.h"

namespace adtrain {

/// Ends this process once its time is over, on a thread that does nothing else. The thread uses neither stdio
/// nor a file system, allocates nothing and takes no lock under which others wait, so nothing can delay it.
class LastDeadline {
 public:
  LastDeadline();
  /// Disarms the deadline: the process ends by itself or continues.
  ~LastDeadline();
  LastDeadline(const LastDeadline&) = delete;
  LastDeadline& operator=(const LastDeadline&) = delete;

  /// Starts the deadline. The process ends with `code`, without destructors, after `seconds_at_work` where
  /// its main thread works, or after `seconds_of_waiting` where it waits for other ranks. Only the first call
  /// counts.
  void arm(ExitCode code, double seconds_at_work, double seconds_of_waiting);

 private:
  void run();

  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  bool stopping_ = false;
  bool armed_ = false;
  ExitCode code_ = ExitCode::kPeerLost;
  double seconds_at_work_ = 0, seconds_of_waiting_ = 0;

  std::thread thread_;
};

}  // namespace adtrain
