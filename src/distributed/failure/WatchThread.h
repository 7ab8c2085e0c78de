#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "base/Clock.h"
#include "base/RunningTime.h"
#include "distributed/DistributedOptions.h"
#include "distributed/failure/FailureWatch.h"
#include "distributed/failure/FirstFailure.h"
#include "distributed/failure/WatchMessage.h"

namespace adtrain {

/// The part of the watch that is the same on every rank: a thread that lets the main thread's messages out,
/// hears the others and judges them.
///
/// It measures their silence in its own running time. A process that was stopped and woken must not take the
/// others for silent, and those that have left in the meantime have left because of it: so it first reads
/// what has arrived, where a verdict upon itself may be, and judges nobody for a while.
class WatchThread : public FailureWatch {
 public:
  void report(const Failure& failure) override;
  bool ask(double seconds) override;
  bool settled() const override { return first_.known(); }

 protected:
  WatchThread(RankIdentity me, const DistributedOptions& options, Tell tell);
  ~WatchThread() override;

  /// For the constructor and the destructor of the class that is derived from this one.
  void start();
  void stop();

  /// The parts of a round, of which there is one every quarter of a second at least. Reads what has come and
  /// sends what is due; `messages` are this rank's own. The rest is for this thread to call.
  virtual void listen(const std::vector<WatchMessage>& messages) = 0;
  /// Looks for a rank that has failed without a word. Left out where this process may have been stopped after
  /// it has read, and once the first failure is known.
  virtual void judge() = 0;
  /// This process was stopped for a while, as all others may have been: until now silence means nothing.
  virtual void forgive_silence() = 0;
  /// What a round waits for.
  virtual std::vector<int> descriptors() const = 0;

  /// Twice a second.
  bool beat_is_due();
  /// What this process is doing, as a message.
  static Beat beat();
  const RankIdentity& me() const { return me_; }
  /// Seconds for which this thread has run; the same all through a part of a round.
  double now() const { return time_.seconds(); }
  /// Silence that is a failure; nobody's where the limit is 0.
  bool too_long(double silent_seconds) const;
  std::optional<Failure> first() const { return first_.get(); }
  /// The first failure is this one, unless there is one already.
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
  bool stopped_meanwhile_ = false;  ///< between the last two looks at the clock

  std::mutex mutex_;
  std::vector<WatchMessage> outgoing_;  ///< by the mutex

  std::thread thread_;
};

/// A rank that asks may be answered sooner than silence becomes a failure by itself: after so many seconds.
inline constexpr double kSilentWhenAsked = 3;

}  // namespace adtrain
