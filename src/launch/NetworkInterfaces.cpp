#include "launch/NetworkInterfaces.h"

#include <memory>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

namespace adtrain {

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    const bool usable = entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET &&
                        (entry->ifa_flags & IFF_RUNNING) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (usable)
      interfaces.push_back({entry->ifa_name, numeric_address(entry->ifa_addr, sizeof(sockaddr_in))});
  }
  return interfaces;
}

std::string numeric_address(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

}  // namespace adtrain
