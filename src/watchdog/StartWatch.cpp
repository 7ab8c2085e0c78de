#include "watchdog/StartWatch.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/Host.h"
#include "base/ProcessTable.h"
#include "base/Text.h"
#include "launch/HeldTermination.h"
#include "watchdog/FailureWatch.h"
#include "watchdog/LastDeadline.h"
#include "watchdog/StoppedPeer.h"

namespace adtrain {
namespace {

constexpr double kSecondsALook = 0.5;
/// The main thread checks the same deadline where it can, and its error says more. So this thread waits a
/// little longer.
constexpr double kSecondsForTheMainThread = 3;
/// A process that has ended may have been replaced by another of the same rank (a script that continues).
constexpr double kGoneForGood = 1;
/// Counted from SIGTERM. mpirun kills after one second.
constexpr double kSecondsToLook = 1.2;
/// Ranks none of which is to blame end together. For so long before that moment nobody checks for processes
/// that are gone, and no rank believes that another has failed.
constexpr auto kUntilAllEnd = std::chrono::milliseconds(800);
/// A rank that has named the culprit waits for this time, as a slower rank must not find it gone. Launchers,
/// too, take the first exit for the cause.
constexpr auto kAfterTheFirst = std::chrono::milliseconds(2500);

/// Ends a rank that was stopped before all ranks had met and that the others have given up. Its launcher
/// would wait long for it (torchrun: 30 seconds), and if it continued it would find no other rank. It has
/// nothing to save yet.
void end_if_stopped(const RankIdentity& who) {
  if (who.process <= 1 || who.started == 0) return;
  const auto status = status_of_process(who.process);
  if (!status || status->state != 'T' || static_cast<int64_t>(status->started) != who.started) return;
  kill(static_cast<pid_t>(who.process), SIGKILL);
}

Failure absence_of(const RankIdentity& who, const std::string& error, const std::string& advice) {
  return {who, {}, ExitCode::kPeerLost, error, advice};
}

constexpr const char* kAdviceForGone =
    "look at its last lines and at the system log (out of memory, a crash, a signal), and start again";

Failure ended_early(const RankIdentity& who) {
  return absence_of(who, "its process has ended before all ranks had met: killed, crashed or left early",
                    kAdviceForGone);
}

Failure stopped_early(const RankIdentity& who) {
  return absence_of(who, "its process is stopped, and not all ranks have met",
                    fmt::format("continue process {} (`kill -CONT {}`) or end it, and start again",
                                who.process, who.process));
}

}  // namespace

StartWatch::StartWatch(const LaunchContext& context, const DistributedOptions& options, Tell tell)
    : context_(context),
      timeout_seconds_(options.rendezvous_timeout_seconds),
      silent_seconds_(options.silent_rank_seconds),
      leave_seconds_(options.leave_within_seconds),
      tell_(std::move(tell)),
      seen_(context),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  held_termination::begin();
  held_termination::descriptor();
  thread_ = std::thread([this] { run(); });
}

StartWatch::~StartWatch() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  eventfd_write(wake_, 1);
  thread_.join();
  close(wake_);
  if (!meeting_) held_termination::take();
  held_termination::release();
}

void StartWatch::waits(const std::string& for_what, const std::string& advice) {
  const std::scoped_lock lock(mutex_);
  phase_ = Phase{for_what, advice, Deadline(timeout_seconds_ + kSecondsForTheMainThread)};
  eventfd_write(wake_, 1);
}

void StartWatch::hand_over(FailureWatch* watch) {
  const std::scoped_lock lock(mutex_);
  watch_ = watch;
}

void StartWatch::nobody_is_waited_for() {
  const std::scoped_lock lock(mutex_);
  phase_.reset();
  meeting_ = false;
}

void StartWatch::tell(const Failure& failure) {
  {
    const std::scoped_lock lock(mutex_);
    if (told_) return;
    told_ = true;
    if (ends_by_signal_) return;
  }
  tell_(failure);
  changed_.notify_all();
}

RankIdentity StartWatch::identity_of(int64_t rank) const {
  const auto seen = seen_.ranks().find(rank);
  const int64_t process = seen == seen_.ranks().end() ? 0 : seen->second.process;
  if (process == 0) return {rank, context_.world_size, "", 0};
  return {rank, context_.world_size, host_name(), process, start_of_process(process)};
}

Failure StartWatch::absence(const std::vector<int64_t>& missing, const std::string& why) {
  const std::scoped_lock lock(looking_);
  seen_.look();
  int64_t culprit = missing.front();
  std::string known = "nothing else is known of it";
  for (const int64_t rank : missing) {
    const auto seen = seen_.ranks().find(rank);
    if (seen == seen_.ranks().end()) continue;  // of another host
    const auto& [process, descriptor, gone, stopped] = seen->second;
    if (!gone && !stopped) {
      if (rank == culprit) known = fmt::format("its process {} runs on this host", process);
      continue;
    }
    culprit = rank;
    known = stopped ? fmt::format("its process {} is stopped", process)
                    : "there is no process of it on " + host_name();
    break;
  }
  return absence_of(identity_of(culprit), fmt::format("it did not come: {}; {}", why, known),
                    "look at its last lines, and whether it was started with the same world size, address "
                    "and port as the others");
}

void StartWatch::run() {
  while (true) {
    std::optional<Phase> phase;
    {
      const std::scoped_lock lock(mutex_);
      if (stopping_) return;
      phase = phase_;
    }
    if (held_termination::asked()) {
      answer_termination();
      continue;
    }
    if (phase && phase->deadline.passed()) return miss_deadline(*phase);
    if (phase) {
      if (const auto found = look()) blame(*found);
    }
    std::vector<pollfd> events = {{wake_, POLLIN, 0}, {held_termination::descriptor(), POLLIN, 0}};
    if (phase) {
      const std::scoped_lock lock(looking_);
      for (const int process : seen_.descriptors()) events.push_back({process, POLLIN, 0});
    }
    poll(events.data(), events.size(), phase ? static_cast<int>(1e3 * kSecondsALook) : -1);
    eventfd_t changes = 0;
    eventfd_read(wake_, &changes);
    eventfd_read(held_termination::descriptor(), &changes);  // asked() says what it said
  }
}

std::optional<Failure> StartWatch::look() {
  const std::scoped_lock lock(looking_);
  seen_.look();
  if (const auto rank = seen_.gone_for(kGoneForGood)) return ended_early(identity_of(*rank));
  for (const auto& [rank, seen] : seen_.ranks()) {
    if (seen.stopped && silent_seconds_ > 0 && seen.stopped->seconds() > silent_seconds_)
      return stopped_early(identity_of(rank));
  }
  return std::nullopt;
}

bool StartWatch::name_culprit() {
  if (const auto found = culprit()) tell(*found);
  const std::scoped_lock lock(mutex_);
  return told_;
}

std::optional<Failure> StartWatch::culprit() {
  const std::scoped_lock lock(looking_);
  seen_.look();
  if (!seen_.gone().empty()) return ended_early(identity_of(seen_.gone().front()));
  for (const auto& [rank, seen] : seen_.ranks())
    if (seen.stopped) return stopped_early(identity_of(rank));
  return std::nullopt;
}

/// The launcher sends SIGTERM because a rank has failed or because it was asked to end the run. Returns where
/// the process goes on: a StopRequest has taken the signal, all ranks have met at the last moment, or this
/// object is destroyed.
void StartWatch::answer_termination() {
  constexpr auto kLook = std::chrono::milliseconds(50);
  const Deadline looking(kSecondsToLook), holding(std::max(leave_seconds_, kSecondsToLook));
  std::unique_lock lock(mutex_);
  while (!stopping_ && !told_ && held_termination::asked() && !(meeting_ ? looking : holding).passed()) {
    if (meeting_) {
      lock.unlock();
      if (const auto found = culprit()) blame(*found);
      lock.lock();
    }
    changed_.wait_for(lock, kLook);
  }
  if (!told_ && !held_termination::asked()) return;
  const bool were_meeting = meeting_;
  ends_by_signal_ = !told_;
  // A rank that was told of a failure leaves after the one that failed.
  changed_.wait_for(lock, told_ ? kAfterTheFirst : kUntilAllEnd, [this] { return stopping_; });
  const bool have_met = were_meeting && !meeting_ && !told_;
  if (!stopping_ && !have_met) held_termination::release();
  ends_by_signal_ = false;
}

void StartWatch::miss_deadline(const Phase& phase) {
  constexpr double kSecondsToTell = 5;
  LastDeadline last;
  last.arm(ExitCode::kEnvironment, kSecondsToTell, kSecondsToTell);
  const EnvironmentError error(fmt::format("Rank {} of {} has waited {} {}; {}", context_.rank,
                                           context_.world_size, human_duration(timeout_seconds_),
                                           phase.for_what, phase.advice));
  report_failure(error, fmt::format("rank {} of {}", context_.rank, context_.world_size));
  if (const auto found = culprit()) tell(*found);
  leave(ExitCode::kEnvironment);
}

void StartWatch::blame(const Failure& failure) {
  FailureWatch* watch = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_ || told_) return;
    watch = watch_;
  }
  if (watch != nullptr) {
    watch->report(failure);  // the watch then calls tell() with the failure that all ranks report
    end_if_stopped(failure.who);
    if (const std::scoped_lock lock(mutex_); told_ || stopping_) return;
  }
  tell(failure);
  end_if_stopped(failure.who);
  std::unique_lock lock(mutex_);
  // After SIGTERM the process ends by that signal; else it ends here.
  if (held_termination::asked()) return;
  changed_.wait_for(lock, kAfterTheFirst, [this] { return stopping_; });
  if (stopping_) return;
  lock.unlock();
  leave(ExitCode::kPeerLost);
}

void StartWatch::leave(ExitCode code) const {
  _exit(static_cast<int>(code));
}

}  // namespace adtrain
