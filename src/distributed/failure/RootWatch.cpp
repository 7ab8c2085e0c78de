#include "distributed/failure/RootWatch.h"

#include <utility>

namespace adtrain {
namespace {

/// From a question to its answer: connections that close in the meantime answer it better.
constexpr double kSecondsToAnswer = 1.5;

/// What a line says; null where it is no JSON, as a stranger might send.
nlohmann::json parsed(const std::string& line) {
  return nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
}

nlohmann::json verdict_on(const Failure& failure) {
  nlohmann::json verdict = message_of("verdict");
  verdict["failure"] = failure;
  return verdict;
}

}  // namespace

RootWatch::RootWatch(RankIdentity me, const DistributedOptions& options, Tell tell, std::string token)
    : WatchThread(std::move(me), options, std::move(tell)), token_(std::move(token)) {
  start();
}

RootWatch::~RootWatch() {
  stop();
  send_to_all(message_of("bye"));
}

std::vector<int> RootWatch::descriptors() const {
  std::vector<int> all = {listener_.descriptor()};
  for (const LineSocket& stranger : strangers_) all.push_back(stranger.descriptor());
  for (const auto& [rank, member] : members_) {
    if (!member.connection.closed()) all.push_back(member.connection.descriptor());
  }
  return all;
}

void RootWatch::round(const std::vector<nlohmann::json>& messages) {
  let_in();
  for (const nlohmann::json& message : messages) {
    if (message.at("kind") == "failed") decide(message.at("failure").get<Failure>());
    if (message.at("kind") == "lost") i_asked_ = true;
  }
  for (auto& [rank, member] : members_) hear(member);
  if (beat_is_due()) send_to_all(beat_message());
  look_for_silence();
  look_for_the_cause();
}

void RootWatch::forgive_silence() {
  for (auto& [rank, member] : members_) member.heard.restart();
}

void RootWatch::let_in() {
  while (auto arrived = listener_.accept()) strangers_.push_back(std::move(*arrived));
  std::vector<LineSocket> unknown;
  for (LineSocket& stranger : strangers_) {
    const std::vector<std::string> lines = stranger.receive();
    if (lines.empty()) {
      if (!stranger.closed()) unknown.push_back(std::move(stranger));
      continue;
    }
    const nlohmann::json hello = parsed(lines.front());
    if (!hello.is_object() || hello.value("token", "") != token_) continue;
    stranger.send(line_of(message_of("welcome")));
    if (first()) stranger.send(line_of(verdict_on(*first())));  // it was found before this one came
    const auto who = hello.at("who").get<RankIdentity>();
    members_.insert({who.rank, Member{std::move(stranger), who, hello.at("doing").get<Doing>()}});
  }
  strangers_ = std::move(unknown);
}

void RootWatch::hear(Member& member) {
  if (member.connection.closed()) return;
  for (const std::string& line : member.connection.receive()) {
    const nlohmann::json message = parsed(line);
    if (message.is_object()) take(member, message);
  }
  if (member.connection.closed() && !member.left) {
    decide(Failure::gone(member.who, member.doing));
  }
}

void RootWatch::take(Member& member, const nlohmann::json& message) {
  member.heard.restart();
  const std::string kind = message.value("kind", "");
  if (kind == "beat") member.doing = message.at("doing").get<Doing>();
  if (kind == "bye") member.left = true;
  if (kind == "failed") decide(message.at("failure").get<Failure>());
  if (kind == "lost") member.asked = true;
}

void RootWatch::look_for_silence() {
  for (const auto& [rank, member] : members_) {
    if (member.left || !too_long(member.heard.seconds())) continue;
    decide(Failure::silent(member.who, member.doing, member.heard.seconds()));
  }
}

void RootWatch::look_for_the_cause() {
  bool asked = i_asked_;
  for (const auto& [rank, member] : members_) asked = asked || member.asked;
  if (!asked || first()) return;
  if (!asked_) asked_.emplace();
  if (asked_->seconds() < kSecondsToAnswer) return;

  for (const auto& [rank, member] : members_) {
    if (member.left || member.heard.seconds() < kSilentWhenAsked) continue;
    decide(Failure::silent(member.who, member.doing, member.heard.seconds()));
  }
  const auto elsewhere = [](const Doing& doing) {
    return doing.waits_in.empty() && doing.seconds > kSilentWhenAsked;
  };
  for (const auto& [rank, member] : members_) {
    if (!member.left && !member.asked && elsewhere(member.doing))
      decide(Failure::elsewhere(member.who, member.doing));
  }
  const Doing mine = Activity::of_this_process().now();
  if (!i_asked_ && elsewhere(mine)) decide(Failure::elsewhere(me(), mine));
}

void RootWatch::decide(const Failure& failure) {
  if (first()) return;
  send_to_all(verdict_on(failure));
  settle(failure);
}

void RootWatch::send_to_all(const nlohmann::json& message) {
  const std::string line = line_of(message);
  for (auto& [rank, member] : members_) {
    if (!member.connection.closed() && !member.left) member.connection.send(line);
  }
}

}  // namespace adtrain
