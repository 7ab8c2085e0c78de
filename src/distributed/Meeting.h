#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/Error.h"
#include "distributed/Communicator.h"
#include "distributed/failure/Failure.h"

namespace adtrain {

class StartWatch;

/// Not all ranks have come, or one has that does not belong here.
class MeetingError : public EnvironmentError {
 public:
  MeetingError(Failure failure, const std::string& message)
      : EnvironmentError(message), failure_(std::move(failure)) {}
  /// Of the rank to look at, for all who are there.
  const Failure& failure() const { return failure_; }

 private:
  Failure failure_;
};

/// Where the ranks of a run find each other, before they are a group: MPI where mpirun has started us, else a
/// store that one of them or the launcher serves. There rank 0 can tell the others how to reach it long
/// before all have come, so that their start is watched.
class Meeting {
 public:
  /// Comes to the place. Throws EnvironmentError where it is not to be found in time; `watch` ends the
  /// process where a call that cannot be called off takes too long.
  static std::unique_ptr<Meeting> attend(const LaunchContext& context, const DistributedOptions& options,
                                         StartWatch& watch);
  virtual ~Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  const LaunchContext& context() const { return context_; }

  /// Rank 0's `word`, on every rank. Waits for rank 0, and for no other rank than it must. To be called once,
  /// by all.
  virtual std::string word_of_root(const std::string& word) = 0;
  /// Waits for all ranks, and joins them. Throws EnvironmentError where they cannot connect, MeetingError
  /// where not all come. To be called once, last.
  virtual std::unique_ptr<Communicator> join() = 0;

 protected:
  explicit Meeting(LaunchContext context) : context_(std::move(context)) {}

 private:
  LaunchContext context_;
};

}  // namespace adtrain
