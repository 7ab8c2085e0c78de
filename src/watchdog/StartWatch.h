#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/Clock.h"
#include "launch/DistributedOptions.h"
#include "launch/LaunchContext.h"
#include "watchdog/Failure.h"
#include "watchdog/SeenRanks.h"

namespace adtrain {

class FailureWatch;

/// Watches a rank's start until the FailureWatch covers all ranks: a thread that ends the process where the
/// start cannot complete. MPI, Gloo and libtorch's store wait for other ranks in calls that cannot be
/// cancelled.
///
/// It detects by their processes, however early, that ranks of this host have ended or are stopped, and
/// reports this. A FailureWatch that already runs decides what is reported, so that all ranks name the same
/// one. It checks when the launcher asks this rank to end (SIGTERM, which is held until then), when a process
/// that existed is gone, when one has been stopped for `silent_rank_seconds`, and when the deadline has
/// passed. The process then ends: with kPeerLost; at the deadline with kEnvironment; and where no rank is to
/// blame by SIGTERM.
///
/// Once all ranks have arrived, a SIGTERM is a request to stop. The ranks are then at different places of
/// their start, so none may end by itself: it is held for a StopRequest, by which all stop after the same
/// step. Where none takes it within `leave_within_seconds`, or a rank fails, the process ends by it.
class StartWatch {
 public:
  using Tell = std::function<void(const Failure&)>;

  /// `tell` is called once, on the thread that finds the first failure.
  StartWatch(const LaunchContext& context, const DistributedOptions& options, Tell tell);
  /// Where all ranks have arrived, the process has done its part or reports an error of its own: a SIGTERM
  /// that nobody has taken by then must not replace that exit code, and is dropped. Else it ends the process.
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

  /// Sets what the rank waits for from now on, for at most rendezvous_timeout_seconds: "for all ranks to
  /// start MPI".
  void waits(const std::string& for_what, const std::string& advice);
  /// From now on `watch` decides about failures. It outlives this object.
  void hand_over(FailureWatch* watch);
  /// All ranks have arrived, or this rank gives up. From now on only SIGTERM is handled, until a StopRequest
  /// takes it over.
  void nobody_is_waited_for();

  /// Reports the first failure; ignores later ones, and all of them in the last moments of a process that
  /// SIGTERM ends. For the FailureWatch and the main thread.
  void tell(const Failure& failure);
  /// To be called where the main thread cannot continue and has no other rank to name: reports which rank of
  /// this host has ended or is stopped. Returns whether there is one.
  bool name_culprit();
  /// The failure of the ranks that did not arrive. It blames one of them: rather one whose process has ended
  /// or is stopped than one that is only late. `why` is what was waited for.
  Failure absence(const std::vector<int64_t>& missing, const std::string& why);

 private:
  struct Phase {
    std::string for_what, advice;
    Deadline deadline;
  };

  void run();
  /// A failure whose condition has held for long enough. Called twice a second, and whenever a rank ends.
  std::optional<Failure> look();
  void answer_termination();
  void miss_deadline(const Phase& phase);
  /// The failure of the rank of this host that ended first, else of one that is stopped; nothing where every
  /// known rank has a process that runs.
  std::optional<Failure> culprit();
  RankIdentity identity_of(int64_t rank) const;
  void blame(const Failure& failure);
  [[noreturn]] void leave(ExitCode code) const;

  LaunchContext context_;
  double timeout_seconds_, silent_seconds_, leave_seconds_;
  Tell tell_;

  std::mutex looking_;  ///< guards the member below
  SeenRanks seen_;

  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  std::optional<Phase> phase_;
  FailureWatch* watch_ = nullptr;
  bool meeting_ = true;  ///< until nobody is waited for
  bool told_ = false;
  bool ends_by_signal_ = false;  ///< within moments, and no rank is to blame
  bool stopping_ = false;

  int wake_;  ///< an eventfd
  std::thread thread_;
};

}  // namespace adtrain
