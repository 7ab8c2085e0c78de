#include "distributed/failure/BranchWatch.h"

#include <utility>

namespace adtrain {

BranchWatch::BranchWatch(RankIdentity me, RankIdentity root, const DistributedOptions& options, Tell tell,
                         LineSocket connection)
    : WatchThread(std::move(me), options, std::move(tell)),
      root_(std::move(root)),
      connection_(std::move(connection)) {
  start();
}

BranchWatch::~BranchWatch() {
  stop();
  connection_.send(line_of(message_of("bye")));
}

std::vector<int> BranchWatch::descriptors() const {
  return connection_.closed() ? std::vector<int>{} : std::vector{connection_.descriptor()};
}

void BranchWatch::round(const std::vector<nlohmann::json>& messages) {
  for (const nlohmann::json& message : messages) {
    asked_ = asked_ || message.at("kind") == "lost";
    connection_.send(line_of(message));
  }
  if (beat_is_due()) connection_.send(line_of(beat_message()));
  if (root_left_) return;
  hear();
  if (first() || root_left_) return;
  if (connection_.closed()) {
    settle(Failure::gone(root_, root_doing_));
  } else if (too_long(heard_.seconds()) || (asked_ && heard_.seconds() > kSilentWhenAsked)) {
    settle(Failure::silent(root_, root_doing_, heard_.seconds()));
  }
}

void BranchWatch::hear() {
  for (const std::string& line : connection_.receive()) {
    heard_.restart();
    const auto message = nlohmann::json::parse(line);
    if (message.at("kind") == "beat") message.at("doing").get_to(root_doing_);
    if (message.at("kind") == "bye") root_left_ = true;
    if (message.at("kind") == "verdict") settle(message.at("failure").get<Failure>());
  }
}

}  // namespace adtrain
