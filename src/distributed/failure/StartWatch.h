#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/Clock.h"
#include "distributed/DistributedOptions.h"
#include "distributed/LaunchContext.h"
#include "distributed/LocalRanks.h"
#include "distributed/failure/Failure.h"

namespace adtrain {

class FailureWatch;

/// Watches over a rank's start until the ranks' watch (FailureWatch) has all of them: a thread that ends the
/// process where the start cannot come to its end. MPI, Gloo and libtorch's store wait for other ranks in
/// calls that cannot be called off.
///
/// It finds that a rank of this host has ended or is stopped by its process, however early that is, and tells
/// it; a FailureWatch that runs already decides what is told, so that all ranks name the same one. It does so
/// when the launcher asks this rank to end (SIGTERM, which it holds until then), when a process that was
/// there is gone, when one is stopped for `silent_rank_seconds`, and when the deadline has passed. The
/// process then ends: with kPeerLost, at the deadline with kEnvironment, and where nobody is to blame by
/// SIGTERM.
class StartWatch {
 public:
  using Tell = std::function<void(const Failure&)>;

  /// `tell` is called once, on whichever thread finds the first failure.
  StartWatch(const LaunchContext& context, const DistributedOptions& options, Tell tell);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

  /// What the rank waits for from now on, at most for rendezvous_timeout_seconds: "for all ranks to start
  /// MPI".
  void waits(const std::string& for_what, const std::string& advice);
  /// From now on failures are decided there. It outlives this object.
  void hand_over(FailureWatch* watch);
  /// All have come, or this rank gives up. What is left is SIGTERM, until a StopRequest takes it over.
  void nobody_is_waited_for();

  /// For the ranks' watch and the main thread: the first failure. Later ones are not told.
  void tell(const Failure& failure);
  /// The main thread cannot go on, and has no other rank to name: tells which rank of this host has ended or
  /// is stopped, where one is. Returns whether anything is told.
  bool name_culprit();
  /// The failure of those that did not come, of which one is to blame: one without a process or with a
  /// stopped one rather than one that is only late. `why` is what was waited for.
  Failure absence(const std::vector<int64_t>& missing, const std::string& why) const;

 private:
  struct Phase {
    std::string for_what, advice;
    Deadline deadline;
  };

  void run();
  /// Twice a second: what has been the case for long enough.
  std::optional<Failure> look();
  void answer_termination();
  void miss_deadline(const Phase& phase);
  /// Nothing where every rank that is known of has a process that runs.
  std::optional<Failure> culprit() const;
  void blame(const Failure& failure);
  [[noreturn]] void leave(ExitCode code) const;

  LaunchContext context_;
  double timeout_seconds_, silent_seconds_;
  Tell tell_;
  LocalRanks local_ranks_;

  struct Seen {
    int64_t process = 0;
    std::optional<Stopwatch> gone, stopped;  ///< since it was first seen so
  };
  mutable std::mutex looking_;  ///< of what follows
  std::map<int64_t, Seen> seen_;
  Stopwatch since_look_;

  mutable std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  std::optional<Phase> phase_;
  FailureWatch* watch_ = nullptr;
  bool told_ = false;
  bool stopping_ = false;

  int wake_;  ///< an eventfd
  std::thread thread_;
};

}  // namespace adtrain
