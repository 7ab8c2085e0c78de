#pragma once

#include <string>
#include <vector>

namespace adtrain {

/// Where rank 0's watch listens, and where the others connect to it.
struct WatchAddress {
  std::string listen;  ///< the one address that it listens at, or 0.0.0.0, or :: where some are IPv6
  std::vector<std::string> reach;  ///< numeric addresses, to be tried in this order

  /// Chooses loopback where all ranks share it. Else it chooses `met_at`, the address of this host at which
  /// the ranks have met, where there is one. Else it chooses the interface that the ranks use, where that is
  /// configured (GLOO_SOCKET_IFNAME, mpirun's btl_tcp_if_include, MASTER_ADDR) or this host has only one.
  /// Otherwise it chooses all interfaces.
  static WatchAddress choose(bool shared_loopback, const std::string& met_at);
};

}  // namespace adtrain
