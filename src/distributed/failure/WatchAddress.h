#pragma once

#include <string>
#include <vector>

namespace adtrain {

/// Where rank 0's watch listens, and where the others find it.
struct WatchAddress {
  std::string listen;              ///< the one address that it listens at, or 0.0.0.0
  std::vector<std::string> reach;  ///< numeric addresses, to be tried in this order

  /// Loopback where all ranks share it. Else `met_at`, the address of this host at which the ranks have met,
  /// where there is one. Else that of the interface that the ranks use, as far as that is told
  /// (GLOO_SOCKET_IFNAME, mpirun's btl_tcp_if_include, MASTER_ADDR) or clear, this host having one only;
  /// where neither is so, all of them.
  static WatchAddress choose(bool shared_loopback, const std::string& met_at);
};

}  // namespace adtrain
