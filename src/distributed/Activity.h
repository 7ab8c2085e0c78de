#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "base/Clock.h"

namespace adtrain {

/// What a process is doing, as an error report tells it.
struct Doing {
  std::string phase;            ///< "training"
  std::optional<int64_t> step;  ///< optimizer steps done, where there are any
  std::string waits_in;         ///< the collective operation in which it waits for others, or ""
  double seconds = 0;           ///< since the last of these changed

  /// "training after step 120, waiting in an all-reduce for 31 s".
  std::string text() const;
};

/// What this process is doing: said by its main thread, read by the thread that watches over failures.
/// Thread-safe; one in a process.
class Activity {
 public:
  static Activity& of_this_process();

  void begin(const std::string& phase);
  void at_step(int64_t step);
  Doing now() const;
  /// Whether the main thread waits for other ranks. Takes no lock.
  bool waits() const { return waits_; }

  /// The main thread waits for other ranks for as long as this lives.
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
  Doing doing_;
  Stopwatch since_;
  std::atomic<bool> waits_ = false;
};

}  // namespace adtrain
