#include "distributed/failure/WatchThread.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "distributed/failure/LineSocket.h"

namespace adtrain {
namespace {

constexpr double kSecondsARound = 0.25;
constexpr double kSecondsToTellAll = 2;
/// Ranks that were told leave behind the one that failed, so that the launcher sees that one's exit code
/// first.
constexpr double kSecondsBehindTheFirst = 4;

}  // namespace

WatchThread::WatchThread(RankIdentity me, const DistributedOptions& options, Tell tell)
    : me_(std::move(me)), options_(options), tell_(std::move(tell)), wake_(eventfd(0, EFD_CLOEXEC)) {}

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
  constexpr double kSecondsOfAStop = 2;  // between two rounds, which are far more frequent
  Stopwatch since_round;
  while (!stopping_) {
    std::vector<int> readable = descriptors();
    readable.push_back(wake_);
    wait_until_readable(readable, kSecondsARound);
    std::vector<nlohmann::json> messages;
    {
      const std::scoped_lock lock(mutex_);
      messages = std::exchange(outgoing_, {});
      eventfd_t count = 0;
      // Only where it was written may it be read, or this would wait.
      if (!messages.empty()) eventfd_read(wake_, &count);
    }
    if (since_round.seconds() > kSecondsOfAStop) forgive_silence();
    since_round.restart();
    round(messages);
    leave_if_due();
  }
}

void WatchThread::put(nlohmann::json message) {
  const std::scoped_lock lock(mutex_);
  outgoing_.push_back(std::move(message));
  eventfd_write(wake_, 1);
}

void WatchThread::report(const Failure& failure) {
  nlohmann::json message = message_of("failed");
  message["failure"] = failure;
  put(std::move(message));
  std::unique_lock lock(mutex_);
  told_.wait_for(lock, std::chrono::duration<double>(kSecondsToTellAll), [this] { return is_told_; });
}

bool WatchThread::ask(double seconds) {
  put(message_of("lost"));
  std::unique_lock lock(mutex_);
  return told_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return is_told_; });
}

bool WatchThread::beat_is_due() {
  constexpr double kSecondsABeat = 0.5;
  if (since_beat_.seconds() < kSecondsABeat) return false;
  since_beat_.restart();
  return true;
}

bool WatchThread::too_long(double silent_seconds) const {
  return options_.silent_rank_seconds > 0 && silent_seconds > options_.silent_rank_seconds;
}

nlohmann::json message_of(const char* kind) {
  // A brace of one pair would be an array to some compilers.
  nlohmann::json message = nlohmann::json::object();
  message["kind"] = kind;
  return message;
}

nlohmann::json beat_message() {
  nlohmann::json beat = message_of("beat");
  beat["doing"] = Activity::of_this_process().now();
  return beat;
}

std::string line_of(const nlohmann::json& message) {
  return message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void WatchThread::settle(const Failure& failure) {
  if (first_) return;
  first_ = failure;
  since_first_.restart();
  tell_(failure);
  const std::scoped_lock lock(mutex_);
  is_told_ = true;
  told_.notify_all();
}

void WatchThread::leave_if_due() const {
  if (!first_) return;
  const bool waits = !Activity::of_this_process().now().waits_in.empty();
  if (since_first_.seconds() < (waits ? kSecondsBehindTheFirst : options_.leave_within_seconds)) return;
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(ExitCode::kPeerLost));
}

}  // namespace adtrain
