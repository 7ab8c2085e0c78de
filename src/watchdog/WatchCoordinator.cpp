#include "watchdog/WatchCoordinator.h"

#include <algorithm>
#include <utility>

#include "watchdog/Standstill.h"

namespace adtrain {
namespace {

/// From a question to its answer. A connection that closes in the meantime is a better answer.
constexpr double kSecondsToAnswer = 1.5;
/// The same where no rank is found to be the cause: whoever has fallen silent is known by then.
constexpr double kSecondsToStandStill = kSilentWhenAsked + 2;
/// A rank that has asked leaves after ten seconds, and is answered before that in any case.
constexpr double kSecondsToAnswerAnyway = 8;

/// What a rank waits in, or waited in until it gave up: the error has ended its wait by then. A wait that was
/// short tells nothing, as it may have been in several between two reports.
ActivityStatus standing(const ActivityStatus& doing, const ActivityStatus& waited, bool asked) {
  constexpr double kLongWait = 1;
  const bool gave_up = asked && doing.waits_in.empty() && doing.step == waited.step;
  return gave_up && waited.seconds > kLongWait ? waited : doing;
}

}  // namespace

WatchCoordinator::WatchCoordinator(RankIdentity me, const DistributedOptions& options, Tell tell,
                                   std::string secret, const std::string& address)
    : WatchThread(std::move(me), options, std::move(tell)), secret_(std::move(secret)) {
  listener_.emplace(address);
  port_ = listener_->port();
  start();
}

WatchCoordinator::~WatchCoordinator() {
  stop();
  send_to_all(Bye{});
}

std::vector<int> WatchCoordinator::descriptors() const {
  std::vector<int> all;
  if (listener_ && now() >= accepts_from_) all.push_back(listener_->descriptor());
  for (const Stranger& stranger : strangers_) all.push_back(stranger.connection.descriptor());
  for (const auto& [rank, member] : members_) {
    if (!member.connection.closed()) all.push_back(member.connection.descriptor());
  }
  return all;
}

void WatchCoordinator::listen(const std::vector<WatchMessage>& messages) {
  let_in();
  for (auto& [rank, member] : members_) hear(member);
  const ActivityStatus mine = Activity::of_this_process().now();
  if (!mine.waits_in.empty()) i_waited_ = mine;
  for (const WatchMessage& message : messages) {
    if (const auto* failed = std::get_if<Failed>(&message)) decide(failed->failure);
    i_asked_ = i_asked_ || std::holds_alternative<Lost>(message);
  }
  if (beat_is_due()) send_to_all(beat());
  for (auto& [rank, member] : members_) member.connection.flush();
}

void WatchCoordinator::judge() {
  look_for_the_gone();
  look_for_silence();
  look_for_the_cause();
}

void WatchCoordinator::forgive_silence() {
  for (auto& [rank, member] : members_) member.heard_at = now();
  if (asked_at_) asked_at_ = now();
}

void WatchCoordinator::let_in() {
  if (!listener_) return;
  if (now() >= accepts_from_) accept_strangers();
  std::deque<Stranger> unknown;
  for (Stranger& stranger : strangers_) {
    if (still_unknown(stranger)) unknown.push_back(std::move(stranger));
  }
  strangers_ = std::move(unknown);
  while (strangers_.size() > kMostStrangers) strangers_.pop_front();
  if (all_have_come()) {
    listener_.reset();
    strangers_.clear();
  }
}

void WatchCoordinator::accept_strangers() {
  constexpr size_t kMostARound = kMostStrangers / 2;  // so that each is read in at least two rounds
  constexpr double kPauseSeconds = 0.5;
  for (size_t i = 0; i < kMostARound; ++i) {
    auto arrived = listener_->accept();
    if (!arrived) break;
    strangers_.push_back({std::move(*arrived), now()});
  }
  if (!listener_->exhausted()) return;
  if (!strangers_.empty()) strangers_.pop_front();  // frees its descriptor for the next one
  accepts_from_ = now() + kPauseSeconds;
}

bool WatchCoordinator::all_have_come() const {
  return static_cast<int64_t>(members_.size()) == me().world_size - 1;
}

bool WatchCoordinator::still_unknown(Stranger& stranger) {
  const std::vector<std::string> lines = stranger.connection.receive();
  if (lines.empty()) {
    return !stranger.connection.closed() && stranger.connection.unfinished() <= kLongestHello &&
           now() - stranger.arrived_at < kSecondsToSayHello;
  }
  if (lines.front().size() > kLongestHello) return false;
  const auto message = read_watch_message(lines.front());
  const Hello* hello = message ? std::get_if<Hello>(&*message) : nullptr;
  if (hello == nullptr || !same_secret(secret_, hello->secret)) return false;
  const RankIdentity& who = hello->who;
  if (who.world_size != me().world_size || who.rank == me().rank || members_.contains(who.rank)) return false;

  stranger.connection.send(line_of(Welcome{}));
  const auto known = first();  // it may have been found before this rank connected
  if (known) stranger.connection.send(line_of(Verdict{*known}));
  Member& member =
      members_.try_emplace(who.rank, Member{std::move(stranger.connection), who, hello->doing, now()})
          .first->second;
  for (size_t i = 1; i < lines.size(); ++i) {
    if (const auto next = read_watch_message(lines[i])) take(member, *next);
  }
  return false;
}

void WatchCoordinator::hear(Member& member) {
  if (member.connection.closed()) return;
  for (const std::string& line : member.connection.receive()) {
    if (const auto message = read_watch_message(line)) take(member, *message);
  }
}

void WatchCoordinator::take(Member& member, const WatchMessage& message) {
  member.heard_at = now();
  if (const auto* beat = std::get_if<Beat>(&message)) {
    member.doing = beat->doing;
    if (!beat->doing.waits_in.empty()) member.waited = beat->doing;
  }
  if (std::holds_alternative<Bye>(message)) member.left = true;
  if (const auto* failed = std::get_if<Failed>(&message)) decide(failed->failure);
  if (std::holds_alternative<Lost>(message)) member.asked = true;
  // The others gave this rank up while it was stopped.
  const auto* verdict = std::get_if<Verdict>(&message);
  if (verdict != nullptr && verdict->failure.who.rank == me().rank) decide(verdict->failure);
}

void WatchCoordinator::look_for_the_gone() {
  for (const auto& [rank, member] : members_) {
    if (member.connection.closed() && member.stays()) decide(Failure::gone(member.who, member.doing));
  }
}

void WatchCoordinator::look_for_silence() {
  for (const auto& [rank, member] : members_) {
    const double silent = now() - member.heard_at;
    if (member.stays() && too_long(silent)) decide(Failure::silent(member.who, member.doing, silent));
  }
}

void WatchCoordinator::look_for_the_cause() {
  bool asked = i_asked_;
  for (const auto& [rank, member] : members_) asked = asked || member.asked;
  if (!asked || settled()) return;
  if (!asked_at_) asked_at_ = now();
  if (now() - *asked_at_ < kSecondsToAnswer) return;

  for (const auto& [rank, member] : members_) {
    const double silent = now() - member.heard_at;
    if (!member.stays() || silent < kSilentWhenAsked) continue;
    decide(Failure::silent(member.who, member.doing, silent));
  }
  const auto elsewhere = [](const ActivityStatus& doing) {
    return doing.waits_in.empty() && doing.seconds > kSilentWhenAsked;
  };
  for (const auto& [rank, member] : members_) {
    if (!member.left && !member.asked && elsewhere(member.doing))
      decide(Failure::elsewhere(member.who, member.doing));
  }
  const ActivityStatus mine = Activity::of_this_process().now();
  if (!i_asked_ && elsewhere(mine)) decide(Failure::elsewhere(me(), mine));
  look_for_a_standstill();
}

void WatchCoordinator::look_for_a_standstill() {
  const double since_asked = now() - *asked_at_;
  if (settled() || since_asked < kSecondsToStandStill) return;
  const ActivityStatus mine = Activity::of_this_process().now();
  std::vector<StandingRank> ranks = {{me(), standing(mine, i_waited_, i_asked_)}};
  bool all_wait = all_have_come() && (i_asked_ || !mine.waits_in.empty());
  for (const auto& [rank, member] : members_) {
    if (member.left) continue;
    ranks.push_back({member.who, standing(member.doing, member.waited, member.asked)});
    all_wait = all_wait && (member.asked || !member.doing.waits_in.empty());
  }
  if (all_wait || since_asked >= kSecondsToAnswerAnyway) decide(standstill(ranks));
}

void WatchCoordinator::decide(const Failure& failure) {
  if (settled()) return;
  send_to_all(Verdict{failure});
  settle(failure);
}

void WatchCoordinator::send_to_all(const WatchMessage& message) {
  const std::string line = line_of(message);
  for (auto& [rank, member] : members_) {
    if (!member.connection.closed() && !member.left) member.connection.send(line);
  }
}

}  // namespace adtrain
