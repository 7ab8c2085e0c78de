#pragma once

#include <string>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

namespace adtrain {

struct NetworkInterface {
  std::string name;
  std::string address;  ///< numeric
};

/// IPv4 interfaces of this host that are up and lead to other hosts.
std::vector<NetworkInterface> network_interfaces();

/// "10.0.0.7".
std::string numeric_address(const sockaddr* address, socklen_t length);

}  // namespace adtrain
