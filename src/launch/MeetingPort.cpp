#include "launch/MeetingPort.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/Error.h"
#include "launch/MasterAddress.h"
#include "launch/NetworkInterfaces.h"

namespace adtrain {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

/// "" where the address does not belong to this host: only its own addresses can be bound.
std::string own_address(const addrinfo& remote) {
  const int probe = socket(remote.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return "";
  sockaddr_storage local{};
  std::memcpy(&local, remote.ai_addr, remote.ai_addrlen);
  auto* plain = reinterpret_cast<sockaddr*>(&local);
  if (plain->sa_family == AF_INET) reinterpret_cast<sockaddr_in*>(plain)->sin_port = 0;
  if (plain->sa_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(plain)->sin6_port = 0;
  const bool own = bind(probe, plain, remote.ai_addrlen) == 0;
  close(probe);
  return own ? numeric_address(plain, remote.ai_addrlen) : "";
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

/// −1, and errno says why.
int bound_socket(int family, const sockaddr* address, socklen_t length) {
  const int descriptor = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  const int on = 1, off = 0;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(descriptor, address, length) == 0) return descriptor;
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

int bind_everywhere(int64_t port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<uint16_t>(port));
  const int descriptor = bound_socket(AF_INET6, reinterpret_cast<const sockaddr*>(&six), sizeof six);
  if (descriptor >= 0 || errno == EADDRINUSE || errno == EACCES) return descriptor;
  sockaddr_in four{};  // a host without IPv6
  four.sin_family = AF_INET;
  four.sin_port = six.sin6_port;
  return bound_socket(AF_INET, reinterpret_cast<const sockaddr*>(&four), sizeof four);
}

int bind_to(const std::string& address, int64_t port) {
  if (address.empty()) return bind_everywhere(port);
  const MasterAddress resolved(address, port);
  if (resolved.first() == nullptr) {
    errno = EADDRNOTAVAIL;
    return -1;
  }
  return bound_socket(resolved.first()->ai_family, resolved.first()->ai_addr, resolved.first()->ai_addrlen);
}

/// The launcher's socket, where it has bound one to this port; else −1.
int inherited_socket(int64_t port) {
  const std::string text = process_environment(kMeetingSocketVariable).value_or("");
  int descriptor = -1;
  if (text.empty() || std::from_chars(text.data(), text.data() + text.size(), descriptor).ec != std::errc() ||
      descriptor <= STDERR_FILENO || port_of(descriptor) != port) {
    return -1;
  }
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return descriptor;
}

/// The store refuses nobody, and many unknown connections must not use up the descriptors that the run needs.
void allow_many_descriptors() {
  constexpr rlim_t kEnough = 1 << 16;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

MeetingAddress MeetingAddress::of(const LaunchContext& context) {
  const MasterAddress master(context.master_address, context.master_port);
  const std::vector<const addrinfo*> addresses = master.all();
  std::vector<std::string> own;
  for (const addrinfo* address : addresses) {
    if (std::string mine = own_address(*address); !mine.empty()) own.push_back(std::move(mine));
  }
  if (context.on_one_host() && !own.empty()) return {kLoopback, kLoopback};
  // On its own host a name may resolve to loopback, which no other host can reach. Where it has several
  // addresses, each of the others connects to the first one that answers it, and this host cannot know which.
  const bool only_one = addresses.size() == 1 && own.size() == 1;
  if (only_one && !is_loopback(own.front())) return {own.front(), context.master_address};
  return {"", context.is_root() ? kLoopback : context.master_address, master.trouble()};
}

MeetingPort::MeetingPort(const LaunchContext& context, const MeetingAddress& address)
    : socket_(inherited_socket(context.master_port)) {
  allow_many_descriptors();
  if (socket_ < 0) socket_ = bind_to(address.listen, context.master_port);
  if (socket_ >= 0) return;
  const std::string place =
      fmt::format("{}:{} (MASTER_ADDR and MASTER_PORT)", context.master_address, context.master_port);
  if (errno == EADDRINUSE) {
    throw EnvironmentError(
        fmt::format("Rank 0 cannot serve the meeting point at {}: the port is in use on this host, by "
                    "another run perhaps, or by a second process that was given rank 0; set MASTER_PORT to "
                    "a free port, the same on every rank.",
                    place));
  }
  throw EnvironmentError(fmt::format("Rank 0 cannot serve the meeting point at {} ({}).", place,
                                     std::generic_category().message(errno)));
}

MeetingPort::~MeetingPort() {
  if (mine_) close(socket_);
}

int MeetingPort::hand_over() {
  mine_ = false;
  return socket_;
}

void MeetingPort::refuse_more() const {
  // The store has the descriptor and no call to close it. Another socket takes its place under the same
  // number; with its last descriptor the listening one is closed, and epoll forgets it.
  const int closed = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (closed < 0) return;
  dup3(closed, socket_, O_CLOEXEC);
  close(closed);
}

int bind_loopback(int64_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return bound_socket(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

int64_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port);
  return 0;
}

}  // namespace adtrain
