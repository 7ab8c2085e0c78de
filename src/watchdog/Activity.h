#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "base/Clock.h"

namespace adtrain {

/// What a process is doing, as an error report describes it.
struct ActivityStatus {
  std::string phase;            ///< "training"
  std::optional<int64_t> step;  ///< optimizer steps done; absent where there are none
  std::string waits_in;         ///< the collective operation in which it waits for other ranks, or ""
  double seconds = 0;           ///< since the latest change of phase, step or waits_in

  /// "training after step 120, waiting in an all-reduce for 31 s".
  std::string text() const;
};

/// What this process is doing, and how its user goes on once it has failed. Its main thread writes it, and
/// the thread that watches for failures reads it. Thread-safe; one per process.
class Activity {
 public:
  static Activity& of_this_process();

  void begin(const std::string& phase);
  void at_step(int64_t step);
  ActivityStatus now() const;
  /// Whether the command is continued by --resume once it has failed. Else it is started again as it was.
  void continues_by_resume(bool does) { continues_by_resume_ = does; }
  /// What to do then, as the end of an advice: "start again with --resume".
  std::string to_go_on() const;
  /// Whether the main thread waits for other ranks. Takes no lock.
  bool waits() const { return waits_; }

  /// Marks the main thread as waiting for other ranks while this object exists.
  class Waiting {
   public:
    explicit Waiting(const char* operation) { of_this_process().wait_in(operation); }
    ~Waiting() { of_this_process().wait_in(""); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
  };

 private:
  void wait_in(const char* operation);

  mutable std::mutex mutex_;
  ActivityStatus doing_;
  Stopwatch since_;
  std::atomic<bool> waits_ = false, continues_by_resume_ = false;
};

}  // namespace adtrain
