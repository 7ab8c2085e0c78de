#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "watchdog/Failure.h"
#include "watchdog/LastDeadline.h"

namespace adtrain {

/// The first failure of a run, as this rank knows it. Once it is known, a thread of its own reports it, as
/// disk or terminal may hang. A deadline starts at the same time and ends the process whether or not the
/// report succeeds.
class FirstFailure {
 public:
  explicit FirstFailure(std::function<void(const Failure&)> tell);
  ~FirstFailure();
  FirstFailure(const FirstFailure&) = delete;
  FirstFailure& operator=(const FirstFailure&) = delete;

  /// Only the first call counts. `code` and the two times are passed to LastDeadline::arm().
  void settle(const Failure& failure, ExitCode code, double seconds_at_work, double seconds_of_waiting);
  bool known() const;
  /// The first failure; nothing until it is known.
  std::optional<Failure> get() const;
  /// Waits at most `seconds` for a failure to be known, and a little longer for it to be reported. Returns
  /// whether it is known.
  bool wait_until_told(double seconds);

 private:
  void tell_it();

  LastDeadline deadline_;  ///< outlives the reporting thread, which may hang
  std::function<void(const Failure&)> tell_;

  mutable std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  std::optional<Failure> failure_;
  bool told_ = false;
  bool stopping_ = false;

  std::thread teller_;
};

}  // namespace adtrain
