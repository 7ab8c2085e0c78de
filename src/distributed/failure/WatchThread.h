#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/Clock.h"
#include "distributed/DistributedOptions.h"
#include "distributed/failure/FailureWatch.h"

namespace adtrain {

/// The part of the watch that is the same on every rank: a thread that lets the main thread's messages out,
/// tells the first failure and ends a process that does not end by itself. What travels over the connections
/// is one JSON object a line, of a `kind`: hello, welcome, beat, failed, lost, verdict, bye.
class WatchThread : public FailureWatch {
 public:
  void report(const Failure& failure) override;
  bool ask(double seconds) override;

 protected:
  WatchThread(RankIdentity me, const DistributedOptions& options, Tell tell);
  ~WatchThread() override;

  /// For the constructor and the destructor of the class that is derived from this one.
  void start();
  void stop();

  /// One round, at least once a second: reads what has come and sends what is due. `messages` are this rank's
  /// own. The rest is for this thread to call.
  virtual void round(const std::vector<nlohmann::json>& messages) = 0;
  /// This process was stopped for a while, as all others may have been: until now silence means nothing.
  virtual void forgive_silence() = 0;
  /// What a round waits for.
  virtual std::vector<int> descriptors() const = 0;

  /// Twice a second.
  bool beat_is_due();
  const RankIdentity& me() const { return me_; }
  /// Silence that is a failure; nobody's where the limit is 0.
  bool too_long(double silent_seconds) const;
  const std::optional<Failure>& first() const { return first_; }
  /// The first failure is this one, unless there is one already.
  void settle(const Failure& failure);

 private:
  void run();
  void put(nlohmann::json message);
  void leave_if_due() const;

  RankIdentity me_;
  DistributedOptions options_;
  Tell tell_;
  int wake_;  ///< an eventfd
  std::atomic<bool> stopping_ = false;
  Stopwatch since_beat_;
  std::optional<Failure> first_;
  Stopwatch since_first_;

  std::mutex mutex_;  ///< of what follows
  std::condition_variable told_;
  bool is_told_ = false;
  std::vector<nlohmann::json> outgoing_;

  std::thread thread_;
};

nlohmann::json message_of(const char* kind);
/// Says what this process is doing.
nlohmann::json beat_message();
/// As it travels. Error texts may hold any bytes, file names for one; what is no UTF-8 is replaced.
std::string line_of(const nlohmann::json& message);

/// A rank that asks may be answered sooner than silence becomes a failure by itself: after so many seconds.
inline constexpr double kSilentWhenAsked = 3;

}  // namespace adtrain
