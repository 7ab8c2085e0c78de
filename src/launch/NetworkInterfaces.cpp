#include "launch/NetworkInterfaces.h"

#include <algorithm>
#include <memory>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

namespace adtrain {
namespace {

bool leads_elsewhere(const ifaddrs& entry) {
  return entry.ifa_addr != nullptr && (entry.ifa_flags & IFF_RUNNING) != 0 &&
         (entry.ifa_flags & IFF_LOOPBACK) == 0;
}

/// A link-local address means something only together with the name of an interface of the host that uses it.
bool is_link_local(const ifaddrs& entry) {
  const auto* six = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
  return IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

}  // namespace

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (leads_elsewhere(*entry) && entry->ifa_addr->sa_family == AF_INET)
      interfaces.push_back({entry->ifa_name, numeric_address(entry->ifa_addr, sizeof(sockaddr_in))});
  }
  if (!interfaces.empty()) return interfaces;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    const auto is_this = [&](const NetworkInterface& other) { return other.name == entry->ifa_name; };
    if (leads_elsewhere(*entry) && entry->ifa_addr->sa_family == AF_INET6 && !is_link_local(*entry) &&
        std::none_of(interfaces.begin(), interfaces.end(), is_this)) {
      interfaces.push_back({entry->ifa_name, numeric_address(entry->ifa_addr, sizeof(sockaddr_in6))});
    }
  }
  return interfaces;
}

std::string numeric_address(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

}  // namespace adtrain
