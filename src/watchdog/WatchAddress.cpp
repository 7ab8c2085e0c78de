#include "watchdog/WatchAddress.h"

#include <algorithm>
#include <cstdint>
#include <sstream>

#include <arpa/inet.h>

#include "launch/LaunchContext.h"
#include "launch/NetworkInterfaces.h"

namespace adtrain {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kEverywhere = "0.0.0.0";

uint32_t number_of(const std::string& address) {
  in_addr parsed{};
  return inet_pton(AF_INET, address.c_str(), &parsed) == 1 ? ntohl(parsed.s_addr) : 0;
}

/// `place` is an interface's name, its address, or a subnet such as 10.0.0.0/8.
bool lies_in(const NetworkInterface& interface, const std::string& place) {
  const size_t slash = place.find('/');
  if (slash == std::string::npos) return place == interface.name || place == interface.address;
  const int bits = std::clamp(std::atoi(place.c_str() + slash + 1), 0, 32);
  const uint32_t mask = bits == 0 ? 0 : ~uint32_t{0} << (32 - bits);
  return (number_of(interface.address) & mask) == (number_of(place.substr(0, slash)) & mask);
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
  if (number_of(met_at) != 0) return {met_at, {met_at}};
  std::vector<std::string> reach = addresses_of_the_ranks();
  const std::string listen = reach.size() == 1 ? reach.front() : kEverywhere;
  return {listen, std::move(reach)};
}

}  // namespace adtrain
