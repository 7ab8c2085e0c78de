#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/Error.h"
#include "collectives/Communicator.h"
#include "watchdog/Failure.h"

namespace adtrain {

class StartWatch;

/// Not all ranks have arrived, or one has that does not belong to the run.
class MeetingError : public EnvironmentError {
 public:
  MeetingError(Failure failure, const std::string& message)
      : EnvironmentError(message), failure_(std::move(failure)) {}
  /// The failure of the rank to look at, for all ranks that have arrived.
  const Failure& failure() const { return failure_; }

 private:
  Failure failure_;
};

/// Where the ranks of a run find each other before they are a group: MPI where mpirun has started this
/// process, else a store that one of them or the launcher serves. Rank 0 can publish there how it is reached,
/// long before all ranks have arrived, so that their start is watched.
class Meeting {
 public:
  /// Connects to the meeting. Throws EnvironmentError where that fails in time; `watch` ends the process
  /// where a call that cannot be cancelled takes too long.
  static std::unique_ptr<Meeting> attend(const LaunchContext& context, const DistributedOptions& options,
                                         StartWatch& watch);
  virtual ~Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Returns rank 0's `word` on every rank. Waits for rank 0, and for other ranks only where it must. Every
  /// rank must call it once.
  virtual std::string word_of_root(const std::string& word) = 0;
  /// Waits for all ranks and joins them. Throws EnvironmentError where they cannot connect, MeetingError
  /// where not all arrive. Must be called once, last.
  virtual std::unique_ptr<Communicator> join() = 0;

 protected:
  explicit Meeting(LaunchContext context) : context_(std::move(context)) {}
  const LaunchContext& context() const { return context_; }

 private:
  LaunchContext context_;
};

}  // namespace adtrain
