#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "distributed/failure/Failure.h"
#include "distributed/failure/LastDeadline.h"

namespace adtrain {

/// The first failure of a run, as this rank knows it. Once it is known it is told, on a thread of its own,
/// for the disk and the terminal that it is told to may hang; and the process has so long to come to its end.
/// The process ends in time whether or not it could be told.
class FirstFailure {
 public:
  explicit FirstFailure(std::function<void(const Failure&)> tell);
  ~FirstFailure();
  FirstFailure(const FirstFailure&) = delete;
  FirstFailure& operator=(const FirstFailure&) = delete;

  /// The first call stands. `end` are the arguments of LastDeadline::arm().
  void settle(const Failure& failure, ExitCode code, double seconds_at_work, double seconds_of_waiting);
  bool known() const;
  /// Nothing until it is known.
  std::optional<Failure> get() const;
  /// Waits so long for a failure to be known, and a little longer for it to be told. Returns whether it is
  /// known.
  bool wait_until_told(double seconds);

 private:
  void tell_it();

  LastDeadline deadline_;  ///< outlives the telling, which may hang
  std::function<void(const Failure&)> tell_;

  mutable std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  std::optional<Failure> failure_;
  bool told_ = false;
  bool stopping_ = false;

  std::thread teller_;
};

}  // namespace adtrain
