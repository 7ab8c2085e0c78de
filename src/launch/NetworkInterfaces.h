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

/// Interfaces of this host that are up and lead to other hosts, one for each IPv4 address. Where there is no
/// such address, each interface is there once, with an IPv6 address that other hosts can use.
std::vector<NetworkInterface> network_interfaces();

/// "10.0.0.7", "fd00::7"; "" where it is neither an IPv4 nor an IPv6 address.
std::string numeric_address(const sockaddr* address, socklen_t length);

}  // namespace adtrain
