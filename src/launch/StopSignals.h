#pragma once

#include <atomic>
#include <cstdint>

namespace adtrain {

/// The signals by which a process is asked to stop. One request may arrive more than once: `timeout` signals
/// its child and then the process group, to which the child belongs, and a launcher passes on what its ranks
/// may have received themselves. Signals soon after the first one are therefore the same request, and only a
/// later one insists.
///
/// Thread-safe, and may be called by a signal's handler.
class StopSignals {
 public:
  static constexpr double kOneRequestSeconds = 2;

  /// To be called when one arrives. Returns whether it insists.
  bool insists();
  /// The next one is the first.
  void forget() { first_ = kNone; }

 private:
  static constexpr int64_t kNone = -1;
  static_assert(std::atomic<int64_t>::is_always_lock_free);

  std::atomic<int64_t> first_ = kNone;  ///< when it arrived, in ns of the monotonic clock
};

}  // namespace adtrain
