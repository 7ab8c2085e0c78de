#include "collectives/gloo/HostAddress.h"

#include <memory>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/Error.h"
#include "base/Text.h"
#include "launch/MasterAddress.h"
#include "launch/NetworkInterfaces.h"

namespace adtrain {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

bool is_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

/// The local address of a UDP "connection", for which no packet is sent; "" where there is no route.
std::string local_end(const addrinfo& remote) {
  const int socket_ = socket(remote.ai_family, SOCK_DGRAM, 0);
  if (socket_ < 0) return "";
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  auto* address = reinterpret_cast<sockaddr*>(&local);
  const bool found =
      connect(socket_, remote.ai_addr, remote.ai_addrlen) == 0 && getsockname(socket_, address, &length) == 0;
  close(socket_);
  return found ? numeric_address(address, length) : "";
}

std::string only_network_address() {
  const std::vector<NetworkInterface> interfaces = network_interfaces();
  if (interfaces.size() == 1) return interfaces.front().address;
  std::vector<std::string> names;
  for (const NetworkInterface& interface : interfaces) names.push_back(interface.name);
  throw EnvironmentError(
      fmt::format("The ranks are on several hosts and this one has {} network interfaces ({}): which one "
                  "leads to the others is not clear; name it in GLOO_SOCKET_IFNAME.",
                  interfaces.size(), join(names, ", ")));
}

}  // namespace

std::string host_address(const LaunchContext& context) {
  if (context.on_one_host()) return kLoopback;
  const MasterAddress master(context.master_address, context.master_port);
  if (master.first() == nullptr) {
    throw EnvironmentError(
        fmt::format("The master's address '{}' (MASTER_ADDR) cannot be resolved: {}; give a host name or "
                    "address that every rank can resolve.",
                    context.master_address, master.trouble()));
  }
  const std::string address = local_end(*master.first());
  // Debian, for example, maps a host's own name to 127.0.1.1, which no other host can reach.
  return address.empty() || is_loopback(address) ? only_network_address() : address;
}

}  // namespace adtrain
