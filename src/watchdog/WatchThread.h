#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "base/Clock.h"
#include "base/RunningTime.h"
#include "launch/DistributedOptions.h"
#include "watchdog/FailureWatch.h"
#include "watchdog/FirstFailure.h"
#include "watchdog/WatchMessage.h"

namespace adtrain {

/// The part of the watch that is the same on every rank: a thread that sends the main thread's messages,
/// receives those of the others and judges them.
///
/// It measures their silence in its own running time. A process that was stopped and continued must not take
/// the others for silent; those that have left in the meantime left because of it. So it first reads what has
/// arrived, which may include a verdict on itself, and judges nobody for a while.
class WatchThread : public FailureWatch {
 public:
  void report(const Failure& failure) override;
  bool ask(double seconds) override;
  bool settled() const override { return first_.known(); }

 protected:
  WatchThread(RankIdentity me, const DistributedOptions& options, Tell tell);
  ~WatchThread() override;

  /// For the constructor and the destructor of the derived class.
  void start();
  void stop();

  /// One part of a round; there is a round at least every quarter of a second. Reads what has arrived and
  /// sends what is due; `messages` are this rank's own. This thread calls the functions below.
  virtual void listen(const std::vector<WatchMessage>& messages) = 0;
  /// Looks for a rank that has failed without a message. Skipped where this process may have been stopped
  /// since it last read, and once the first failure is known.
  virtual void judge() = 0;
  /// This process was stopped for a while, as all others may have been: silence until now is ignored.
  virtual void forgive_silence() = 0;
  /// The descriptors that a round waits for.
  virtual std::vector<int> descriptors() const = 0;

  /// True twice a second.
  bool beat_is_due();
  /// What this process is doing, as a message.
  static Beat beat();
  const RankIdentity& me() const { return me_; }
  /// Seconds for which this thread has run; constant within a part of a round.
  double now() const { return time_.seconds(); }
  /// Whether this silence is a failure; never where the limit is 0.
  bool too_long(double silent_seconds) const;
  std::optional<Failure> first() const { return first_.get(); }
  /// Makes this the first failure, unless there is one already.
  void settle(const Failure& failure);

 private:
  void run();
  void put(WatchMessage message);
  std::vector<WatchMessage> own_messages();
  void look_at_the_clock();

  RankIdentity me_;
  DistributedOptions options_;
  FirstFailure first_;
  int wake_;  ///< an eventfd
  std::atomic<bool> stopping_ = false;
  Stopwatch since_beat_;
  RunningTime time_;
  double judges_from_ = 0;          ///< by now()
  bool stopped_meanwhile_ = false;  ///< between the last two readings of the clock

  std::mutex mutex_;
  std::vector<WatchMessage> outgoing_;  ///< guarded by the mutex

  std::thread thread_;
};

/// Seconds of silence that are a failure once a rank has asked: fewer than silence alone takes.
inline constexpr double kSilentWhenAsked = 3;

}  // namespace adtrain
