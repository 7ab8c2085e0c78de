#include "watchdog/WatchThread.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "watchdog/LineSocket.h"
#include "watchdog/StoppedPeer.h"

namespace adtrain {
namespace {

constexpr double kSecondsARound = 0.25;
/// Strangers may connect without end; this limits the rounds a second, so that they do not occupy a core.
constexpr auto kShortestRound = std::chrono::milliseconds(5);
/// The thread reads the clock far more often than this. A longer gap means that the process did not run.
constexpr double kSecondsOfAStop = 2;
/// For this time after a stop nobody is judged.
constexpr double kGraceSeconds = 3;
constexpr double kSecondsToTellAll = 2;
/// Ranks that were told of a failure leave this long after the one that failed, so that the launcher sees
/// that one's exit code first.
constexpr double kSecondsAfterTheFirst = 4;
/// A rank that was given up leaves before the others, after this time, for the same reason.
constexpr double kSecondsOfTheGivenUp = 1;

}  // namespace

WatchThread::WatchThread(RankIdentity me, const DistributedOptions& options, Tell tell)
    : me_(std::move(me)),
      options_(options),
      first_(std::move(tell)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

WatchThread::~WatchThread() {
  close(wake_);
}

void WatchThread::start() {
  thread_ = std::thread([this] { run(); });
}

void WatchThread::stop() {
  stopping_ = true;
  eventfd_write(wake_, 1);
  thread_.join();
}

void WatchThread::run() {
  while (!stopping_) {
    std::vector<int> readable = descriptors();
    readable.push_back(wake_);
    wait_until_readable(readable, kSecondsARound);
    look_at_the_clock();
    listen(own_messages());
    look_at_the_clock();
    if (!settled() && !stopped_meanwhile_ && now() >= judges_from_) judge();
    std::this_thread::sleep_for(kShortestRound);
  }
}

void WatchThread::look_at_the_clock() {
  time_.look();
  stopped_meanwhile_ = time_.gap() > kSecondsOfAStop;
  if (!stopped_meanwhile_) return;
  judges_from_ = now() + kGraceSeconds;
  forgive_silence();
}

std::vector<WatchMessage> WatchThread::own_messages() {
  eventfd_t count = 0;
  eventfd_read(wake_, &count);
  const std::scoped_lock lock(mutex_);
  return std::exchange(outgoing_, {});
}

void WatchThread::put(WatchMessage message) {
  const std::scoped_lock lock(mutex_);
  outgoing_.push_back(std::move(message));
  eventfd_write(wake_, 1);
}

void WatchThread::report(const Failure& failure) {
  put(Failed{failure});
  first_.wait_until_told(kSecondsToTellAll);
}

bool WatchThread::ask(double seconds) {
  put(Lost{});
  return first_.wait_until_told(seconds);
}

bool WatchThread::beat_is_due() {
  constexpr double kSecondsABeat = 0.5;
  if (since_beat_.seconds() < kSecondsABeat) return false;
  since_beat_.restart();
  return true;
}

Beat WatchThread::beat() {
  return {Activity::of_this_process().now()};
}

bool WatchThread::too_long(double silent_seconds) const {
  return options_.silent_rank_seconds > 0 && silent_seconds > options_.silent_rank_seconds;
}

void WatchThread::settle(const Failure& failure) {
  const bool mine = failure.who.rank == me_.rank;
  const bool lost = failure.code == ExitCode::kPeerLost;
  const bool given_up = mine && lost && now() < judges_from_ + kGraceSeconds && judges_from_ > 0;
  first_.settle(failure, mine ? failure.code : ExitCode::kPeerLost,
                given_up ? kSecondsOfTheGivenUp : options_.leave_within_seconds,
                given_up ? kSecondsOfTheGivenUp : kSecondsAfterTheFirst);
  if (lost && !mine && failure.who.host == me_.host) wake_if_stopped(failure.who);
}

}  // namespace adtrain
