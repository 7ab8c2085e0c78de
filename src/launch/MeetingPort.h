#pragma once

#include <cstdint>
#include <string>

#include "launch/LaunchContext.h"

namespace adtrain {

/// Where ranks meet if no agent serves the store: the address at which rank 0 listens and to which the others
/// connect. It is as closed to others as possible: where all ranks are on one host it is loopback; else it is
/// the one address of the host that MASTER_ADDR names, where it names one. Where it names several, of which
/// some may lead nowhere, it is every address of the host. It is open only while the ranks meet.
struct MeetingAddress {
  std::string listen;        ///< numeric; empty for every address of the host
  std::string connect;       ///< what ranks connect to; rank 0 too
  std::string trouble = {};  ///< why MASTER_ADDR has no address here; "" where it has one

  static MeetingAddress of(const LaunchContext& context);
};

/// Rank 0's bound socket.
class MeetingPort {
 public:
  /// Binds the context's port, or takes over the socket that `adtrain launch` bound before it started any
  /// rank, so that nobody else could take the port meanwhile. Throws EnvironmentError, which says whether the
  /// port is in use.
  MeetingPort(const LaunchContext& context, const MeetingAddress& address);
  ~MeetingPort();
  MeetingPort(const MeetingPort&) = delete;
  MeetingPort& operator=(const MeetingPort&) = delete;

  /// For the store, which listens on it and closes it in the end.
  int hand_over();
  /// Refuses new connections from now on; existing ones stay. The store that the socket was handed over to
  /// must still exist.
  void refuse_more() const;

 private:
  int socket_;
  bool mine_ = true;
};

/// The variable in which `adtrain launch` passes rank 0 the descriptor of the bound socket.
inline constexpr const char* kMeetingSocketVariable = "ADTRAIN_MEETING_SOCKET";

/// Binds a socket to a loopback port; port 0 chooses a free one. Returns the descriptor, or −1 with errno set
/// where that fails.
int bind_loopback(int64_t port);
/// The port that a socket is bound to; 0 where it is bound to none.
int64_t port_of(int socket);

}  // namespace adtrain
