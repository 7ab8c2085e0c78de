#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "distributed/failure/LineSocket.h"
#include "distributed/failure/WatchThread.h"

namespace adtrain {

/// Rank 0's watch, to which all others are connected. It decides which failure was the first.
///
/// Its port is open until all ranks have come. Whoever connects is a stranger until the first line shows the
/// secret; there are never more than `kMostStrangers`, who have `kSecondsToSayHello` and `kLongestHello`
/// bytes for it, and the longest waiting one goes where another comes.
class RootWatch final : public WatchThread {
 public:
  static constexpr size_t kMostStrangers = 256;
  static constexpr double kSecondsToSayHello = 10;

  /// Listens at a free port of `address`. Throws EnvironmentError where there is none.
  RootWatch(RankIdentity me, const DistributedOptions& options, Tell tell, std::string secret,
            const std::string& address);
  ~RootWatch() override;

  int64_t port() const { return port_; }

 private:
  struct Stranger {
    LineSocket connection;
    double arrived_at;  ///< this and the other times by now()
  };
  struct Member {
    LineSocket connection;
    RankIdentity who;
    Doing doing;
    double heard_at;
    bool left = false;   ///< said goodbye
    bool asked = false;  ///< has lost a peer, so it is not the cause
  };

  void listen(const std::vector<WatchMessage>& messages) override;
  void judge() override;
  void forgive_silence() override;
  std::vector<int> descriptors() const override;

  void accept_strangers();
  void let_in();
  bool all_have_come() const;
  /// Whether the stranger stays one.
  bool still_unknown(Stranger& stranger);
  void hear(Member& member);
  void take(Member& member, const WatchMessage& message);
  void look_for_the_gone();
  void look_for_silence();
  void look_for_the_cause();
  void decide(const Failure& failure);
  void send_to_all(const WatchMessage& message);

  std::string secret_;
  std::optional<LineListener> listener_;  ///< until all have come
  int64_t port_;
  double accepts_from_ = 0;  ///< later than now() while there are no descriptors to accept with
  std::deque<Stranger> strangers_;
  std::map<int64_t, Member> members_;  ///< by rank
  std::optional<double> asked_at_;     ///< the first question
  bool i_asked_ = false;
};

}  // namespace adtrain
