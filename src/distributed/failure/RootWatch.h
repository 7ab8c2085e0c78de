#pragma once

#include <map>
#include <vector>

#include "distributed/failure/LineSocket.h"
#include "distributed/failure/WatchThread.h"

namespace adtrain {

/// Rank 0's watch, to which all others are connected. It decides which failure was the first.
class RootWatch final : public WatchThread {
 public:
  RootWatch(RankIdentity me, const DistributedOptions& options, Tell tell, std::string token);
  ~RootWatch() override;

  int64_t port() const { return listener_.port(); }

 private:
  struct Member {
    LineSocket connection;
    RankIdentity who;
    Doing doing;
    Stopwatch heard = {};
    bool left = false;   ///< said goodbye
    bool asked = false;  ///< has lost a peer, so it is not the cause
  };

  void round(const std::vector<nlohmann::json>& messages) override;
  void forgive_silence() override;
  std::vector<int> descriptors() const override;

  void let_in();
  void hear(Member& member);
  void take(Member& member, const nlohmann::json& message);
  void look_for_silence();
  void look_for_the_cause();
  void decide(const Failure& failure);
  void send_to_all(const nlohmann::json& message);

  std::string token_;
  LineListener listener_;
  std::vector<LineSocket> strangers_;  ///< connected, and have not said who they are
  std::map<int64_t, Member> members_;  ///< by rank
  std::optional<Stopwatch> asked_;     ///< since the first question
  bool i_asked_ = false;
};

}  // namespace adtrain
