#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "watchdog/LineSocket.h"
#include "watchdog/WatchThread.h"

namespace adtrain {

/// Rank 0's watch, to which all others connect. It decides which failure was the first.
///
/// Its port is open until all ranks have connected. A connection is a stranger until its first line shows the
/// secret, for which it has `kSecondsToSayHello` and `kLongestHello` bytes. There are never more than
/// `kMostStrangers`: a further one replaces the one that has waited longest.
class WatchCoordinator final : public WatchThread {
 public:
  static constexpr size_t kMostStrangers = 256;
  static constexpr double kSecondsToSayHello = 10;

  /// Listens on a free port of `address`. Throws EnvironmentError where there is none.
  WatchCoordinator(RankIdentity me, const DistributedOptions& options, Tell tell, std::string secret,
                   const std::string& address);
  ~WatchCoordinator() override;

  int64_t port() const { return port_; }

 private:
  struct Stranger {
    LineSocket connection;
    double arrived_at;  ///< by now(), like the other times
  };
  struct Member {
    LineSocket connection;
    RankIdentity who;
    ActivityStatus doing;
    double heard_at;
    ActivityStatus waited = {};  ///< the latest wait that it has reported
    bool left = false;           ///< said goodbye
    bool asked = false;          ///< it has lost a peer, so it is not the cause

    /// Whether it is still to be heard of. A rank that has asked may leave without a word.
    bool stays() const { return !left && !(asked && connection.closed()); }
  };

  void listen(const std::vector<WatchMessage>& messages) override;
  void judge() override;
  void forgive_silence() override;
  std::vector<int> descriptors() const override;

  void accept_strangers();
  void let_in();
  bool all_have_come() const;
  /// Whether it is still a stranger.
  bool still_unknown(Stranger& stranger);
  void hear(Member& member);
  void take(Member& member, const WatchMessage& message);
  void look_for_the_gone();
  void look_for_silence();
  void look_for_the_cause();
  void look_for_a_standstill();
  void decide(const Failure& failure);
  void send_to_all(const WatchMessage& message);

  std::string secret_;
  std::optional<LineListener> listener_;  ///< until all ranks have connected
  int64_t port_;
  double accepts_from_ = 0;  ///< later than now() while no descriptors are left to accept with
  std::deque<Stranger> strangers_;
  std::map<int64_t, Member> members_;  ///< by rank
  std::optional<double> asked_at_;     ///< time of the first question
  bool i_asked_ = false;
  ActivityStatus i_waited_;  ///< this rank's latest wait
};

}  // namespace adtrain
