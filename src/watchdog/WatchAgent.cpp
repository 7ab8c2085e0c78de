#include "watchdog/WatchAgent.h"

#include <utility>

namespace adtrain {

WatchAgent::WatchAgent(RankIdentity me, RankIdentity root, const DistributedOptions& options, Tell tell,
                       LineSocket connection)
    : WatchThread(std::move(me), options, std::move(tell)),
      root_(std::move(root)),
      connection_(std::move(connection)) {
  start();
}

WatchAgent::~WatchAgent() {
  stop();
  connection_.send(line_of(Bye{}));
}

std::vector<int> WatchAgent::descriptors() const {
  return connection_.closed() ? std::vector<int>{} : std::vector{connection_.descriptor()};
}

void WatchAgent::listen(const std::vector<WatchMessage>& messages) {
  for (const WatchMessage& message : messages) {
    asked_ = asked_ || std::holds_alternative<Lost>(message);
    connection_.send(line_of(message));
  }
  if (beat_is_due()) connection_.send(line_of(beat()));
  connection_.flush();
  if (connection_.closed()) return;
  for (const std::string& line : connection_.receive()) {
    const auto message = read_watch_message(line);
    if (!message) continue;
    heard_at_ = now();
    if (const auto* beat = std::get_if<Beat>(&*message)) root_doing_ = beat->doing;
    if (std::holds_alternative<Bye>(*message)) root_left_ = true;
    if (const auto* verdict = std::get_if<Verdict>(&*message)) settle(verdict->failure);
  }
}

void WatchAgent::judge() {
  if (root_left_) return;
  const double silent = now() - heard_at_;
  if (connection_.closed()) {
    settle(Failure::gone(root_, root_doing_));
  } else if (too_long(silent) || (asked_ && silent > kSilentWhenAsked)) {
    const Failure verdict = Failure::silent(root_, root_doing_, silent);
    connection_.send(line_of(Verdict{verdict}));
    settle(verdict);
  }
}

}  // namespace adtrain
