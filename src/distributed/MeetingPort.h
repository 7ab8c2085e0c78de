#pragma once

#include <cstdint>
#include <string>

#include "distributed/LaunchContext.h"

namespace adtrain {

/// Where the ranks meet that no agent's store serves: the address that rank 0 listens at, and by which the
/// others come. Nobody else is to reach it, as far as that can be: where all ranks are on one host it is
/// loopback; else the one address of the host that MASTER_ADDR names, where it names one; and it is open for
/// as long as the ranks meet, and no longer.
struct MeetingAddress {
  std::string listen;   ///< numeric; empty for every address of the host
  std::string connect;  ///< what ranks connect to; rank 0 too

  static MeetingAddress of(const LaunchContext& context);
};

/// Rank 0's bound socket.
class MeetingPort {
 public:
  /// Binds the context's port; or takes over the socket that `adtrain launch` has bound before there were any
  /// ranks, so that nobody else takes the port meanwhile. Throws EnvironmentError, which says whether the
  /// port is in use.
  MeetingPort(const LaunchContext& context, const MeetingAddress& address);
  ~MeetingPort();
  MeetingPort(const MeetingPort&) = delete;
  MeetingPort& operator=(const MeetingPort&) = delete;

  /// For the store, which listens at it, and closes it in the end.
  int hand_over();
  /// Nobody comes any longer: connections that are there stay, new ones are refused. The store that the
  /// socket was handed over to must still be there.
  void refuse_more() const;

 private:
  int socket_;
  bool mine_ = true;
};

/// The variable in which `adtrain launch` tells rank 0 which descriptor is the bound socket.
inline constexpr const char* kMeetingSocketVariable = "ADTRAIN_MEETING_SOCKET";

/// Binds a socket to a port of loopback, 0 for any that is free. Returns the descriptor, −1 and errno where
/// that fails.
int bind_loopback(int64_t port);
/// The port that a socket is bound to; 0 where it is bound to none.
int64_t port_of(int socket);

}  // namespace adtrain
