#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/Error.h"

namespace adtrain {

/// Ends this process once its time is over, by a thread that does nothing else: it touches neither stdio nor
/// a file system, allocates nothing and takes no lock under which others wait, so nothing can hold it up.
class LastDeadline {
 public:
  LastDeadline();
  /// The process has come to its end by itself, or goes on.
  ~LastDeadline();
  LastDeadline(const LastDeadline&) = delete;
  LastDeadline& operator=(const LastDeadline&) = delete;

  /// From now on: so long until the process ends with `code`, without destructors, where its main thread
  /// works or where it waits for other ranks. The first call stands.
  void arm(ExitCode code, double seconds_at_work, double seconds_of_waiting);

 private:
  void run();

  std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  bool stopping_ = false;
  bool armed_ = false;
  ExitCode code_ = ExitCode::kPeerLost;
  double seconds_at_work_ = 0, seconds_of_waiting_ = 0;

  std::thread thread_;
};

}  // namespace adtrain
