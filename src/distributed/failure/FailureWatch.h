#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "distributed/Communicator.h"
#include "distributed/Meeting.h"
#include "distributed/failure/Failure.h"

namespace adtrain {

/// Finds out which rank failed first and tells every rank, over TCP connections of its own beside MPI, Gloo
/// and NCCL: each rank keeps one to rank 0, over which it says twice a second what it is doing.
///
/// A rank has failed that reports an error, whose connection closes without a goodbye (killed, crashed, left
/// early), or that says nothing for `silent_rank_seconds` (stopped, host gone). A rank that has lost a peer
/// may ask who it was; if all are alive, it is the one that does not wait for others. Where rank 0 itself
/// falls silent, each rank finds so by itself.
///
/// The first failure stands. Every rank then calls `tell` with it, on a thread of the watch, and unless the
/// process ends by itself the watch ends it with exit code 7: within seconds where it waits for other ranks,
/// else after `leave_within_seconds`. So no rank waits for ever, whatever its main thread is blocked in.
class FailureWatch {
 public:
  using Tell = std::function<void(const Failure&)>;

  /// While the ranks meet: each is watched from when it has come. A rank that cannot reach rank 0 goes
  /// unwatched, and says so on standard error; then this is null. Throws EnvironmentError where rank 0 can
  /// open no port, and what Meeting::word_of_root() throws.
  static std::unique_ptr<FailureWatch> start(Meeting& meeting, const DistributedOptions& options, Tell tell);
  /// Says goodbye: this rank has done its part and may leave.
  virtual ~FailureWatch() = default;
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  /// This rank ends because of `failure`, which is the first unless another was told before. Returns when all
  /// ranks that can be reached have been told, or after two seconds.
  virtual void report(const Failure& failure) = 0;
  /// This rank has lost a peer: asks for the first failure and waits for the answer. Returns whether it was
  /// told.
  virtual bool ask(double seconds) = 0;
  /// Whether the first failure is known. The run is given up then, even where its ranks come to their end
  /// before they are ended, as when a rank that was stopped is woken.
  virtual bool settled() const = 0;

 protected:
  FailureWatch() = default;
};

}  // namespace adtrain
