#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launch/DistributedOptions.h"
#include "launch/LaunchContext.h"
#include "watchdog/Failure.h"

namespace adtrain {

/// Finds out which rank failed first and tells every rank. It uses TCP connections of its own, independent of
/// MPI, Gloo and NCCL: each rank keeps one to rank 0 and reports over it twice a second what it is doing.
///
/// A rank has failed if it reports an error, if its connection closes without a goodbye (killed, crashed,
/// left early), or if it sends nothing for `silent_rank_seconds` (stopped, host gone). A rank that has lost a
/// peer may ask which; if all are alive, the one that does not wait in a collective operation is blamed.
/// Where rank 0 itself falls silent, each rank detects that by itself.
///
/// The first failure is final. Every rank then calls `tell` with it, on a thread of the watch. Unless the
/// process ends by itself the watch ends it with exit code 7: within seconds where it waits for other ranks,
/// else after `leave_within_seconds`. So no rank waits for ever, whatever its main thread is blocked in.
class FailureWatch {
 public:
  using Tell = std::function<void(const Failure&)>;

  /// Broadcasts rank 0's message: every rank's call returns it.
  using WordOfRoot = std::function<std::string(const std::string&)>;

  /// To be called while the ranks meet: each rank is watched from its arrival. Every rank calls
  /// `word_of_root` once, which distributes how rank 0 is reached. A rank that cannot reach rank 0 is not
  /// watched: it says so on standard error, and null is returned. Throws EnvironmentError where rank 0 can
  /// open no port, and whatever `word_of_root` throws.
  static std::unique_ptr<FailureWatch> start(const LaunchContext& context, const WordOfRoot& word_of_root,
                                             const DistributedOptions& options, Tell tell);
  /// Says goodbye: this rank has done its part and may leave.
  virtual ~FailureWatch() = default;
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  /// This rank ends because of `failure`, which is the first unless another was reported before. Returns when
  /// all ranks that can be reached have been told, or after two seconds.
  virtual void report(const Failure& failure) = 0;
  /// This rank has lost a peer: asks for the first failure and waits at most `seconds` for the answer.
  /// Returns whether the first failure is known.
  virtual bool ask(double seconds) = 0;
  /// Whether the first failure is known. The run has failed then, even where its ranks finish before the
  /// watch ends them, as when a rank that was stopped is continued.
  virtual bool settled() const = 0;

 protected:
  FailureWatch() = default;
};

}  // namespace adtrain
