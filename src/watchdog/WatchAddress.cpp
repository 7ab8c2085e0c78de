#include "watchdog/WatchAddress.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "launch/LaunchContext.h"
#include "launch/NetworkInterfaces.h"

namespace adtrain {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kEverywhereByIpv4 = "0.0.0.0";
constexpr const char* kEverywhere = "::";  // IPv4 too

/// 4 of an IPv4 address, 16 of an IPv6 address; none where the text is neither.
std::vector<uint8_t> bytes_of(const std::string& address) {
  const std::string without_scope = address.substr(0, address.find('%'));  // of fe80::1%eth0
  std::vector<uint8_t> four(sizeof(in_addr)), sixteen(sizeof(in6_addr));
  if (inet_pton(AF_INET, without_scope.c_str(), four.data()) == 1) return four;
  if (inet_pton(AF_INET6, without_scope.c_str(), sixteen.data()) == 1) return sixteen;
  return {};
}

/// Whether it is the address of one host: 0.0.0.0 and :: mean all of the host that uses them.
bool names_a_host(const std::string& address) {
  const std::vector<uint8_t> bytes = bytes_of(address);
  return std::any_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte != 0; });
}

bool is_ipv6(const std::string& address) {
  return bytes_of(address).size() == sizeof(in6_addr);
}

/// `place` is an interface's name, its address, or a subnet such as 10.0.0.0/8 or fd00::/8.
bool lies_in(const NetworkInterface& interface, const std::string& place) {
  const size_t slash = place.find('/');
  if (slash == std::string::npos) return place == interface.name || place == interface.address;
  const std::vector<uint8_t> mine = bytes_of(interface.address), subnet = bytes_of(place.substr(0, slash));
  if (mine.size() != subnet.size()) return false;  // of the other family, or no subnet
  const int all_bits = 8 * static_cast<int>(subnet.size());
  const auto bits = static_cast<size_t>(std::clamp(std::atoi(place.c_str() + slash + 1), 0, all_bits));
  for (size_t bit = 0; bit < bits; ++bit) {
    if (((mine[bit / 8] ^ subnet[bit / 8]) & (0x80 >> bit % 8)) != 0) return false;
  }
  return true;
}

/// The network between the ranks as the user or the launcher names it, separated by commas.
std::string named_places() {
  for (const char* name : {"GLOO_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include", "MASTER_ADDR"}) {
    if (const auto value = process_environment(name)) return *value;
  }
  return "";
}

std::vector<std::string> addresses_of_the_ranks() {
  const std::vector<NetworkInterface> interfaces = network_interfaces();
  std::istringstream places(named_places());
  std::vector<std::string> named, all;
  for (std::string place; std::getline(places, place, ',');) {
    for (const NetworkInterface& interface : interfaces) {
      if (lies_in(interface, place)) named.push_back(interface.address);
    }
  }
  for (const NetworkInterface& interface : interfaces) all.push_back(interface.address);
  return named.empty() ? all : named;
}

}  // namespace

WatchAddress WatchAddress::choose(bool shared_loopback, const std::string& met_at) {
  if (shared_loopback) return {kLoopback, {kLoopback}};
  if (names_a_host(met_at)) return {met_at, {met_at}};
  std::vector<std::string> reach = addresses_of_the_ranks();
  if (reach.size() == 1) return {reach.front(), reach};
  const bool some_ipv6 = std::any_of(reach.begin(), reach.end(), is_ipv6);
  return {some_ipv6 ? kEverywhere : kEverywhereByIpv4, std::move(reach)};
}

}  // namespace adtrain
