#include "watchdog/LineSocket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/Error.h"
#include "launch/MeetingPort.h"
#include "watchdog/WatchMessage.h"

namespace adtrain {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* plain() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// Of a numeric IPv4 or IPv6 address; no name is looked up. Nothing where the text is neither.
std::optional<SocketAddress> address_of(const std::string& address, int64_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return std::nullopt;
  SocketAddress result;
  result.length = found->ai_addrlen;
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return result;
}

/// Whether the socket becomes writable within the timeout.
bool becomes_writable(int socket_, double timeout_seconds) {
  const Deadline deadline(timeout_seconds);
  int ready = -1;
  do {
    pollfd entry = {socket_, POLLOUT, 0};
    ready = poll(&entry, 1, static_cast<int>(1e3 * std::max(0.0, deadline.seconds_left())));
  } while (ready < 0 && errno == EINTR);
  return ready == 1;
}

}  // namespace

LineSocket::LineSocket(int socket) : socket_(socket) {
  fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
  fcntl(socket_, F_SETFD, FD_CLOEXEC);
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

LineSocket::~LineSocket() {
  if (socket_ >= 0) close(socket_);
}

LineSocket::LineSocket(LineSocket&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      lines_(std::move(other.lines_)),
      received_(std::move(other.received_)),
      skipping_(other.skipping_),
      unsent_(std::move(other.unsent_)),
      closed_(other.closed_) {}

LineSocket& LineSocket::operator=(LineSocket&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(lines_, other.lines_);
  std::swap(received_, other.received_);
  std::swap(skipping_, other.skipping_);
  std::swap(unsent_, other.unsent_);
  std::swap(closed_, other.closed_);
  return *this;
}

std::optional<LineSocket> LineSocket::connect(const std::string& address, int64_t port,
                                              double timeout_seconds) {
  const std::optional<SocketAddress> remote = address_of(address, port);
  if (!remote) return std::nullopt;
  LineSocket connection(socket(remote->family(), SOCK_STREAM, 0));
  if (::connect(connection.socket_, remote->plain(), remote->length) != 0) {
    if (errno != EINPROGRESS || !becomes_writable(connection.socket_, timeout_seconds)) return std::nullopt;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(connection.socket_, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return std::nullopt;
  }
  return connection;
}

void LineSocket::send(const std::string& line) {
  constexpr size_t kMostUnsent = 4 * kLongestLine;  // beyond this nobody reads, and lines are useless
  if (unsent_.size() + line.size() < kMostUnsent) unsent_ += line + "\n";
  flush();
}

void LineSocket::flush() {
  size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t count = ::send(socket_, unsent_.data() + sent, unsent_.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      if (errno != EAGAIN) sent = unsent_.size();  // the peer is gone
      break;
    }
    sent += static_cast<size_t>(count);
  }
  unsent_.erase(0, sent);
}

std::vector<std::string> LineSocket::receive() {
  read();
  return std::exchange(lines_, {});
}

void LineSocket::read() {
  // A peer that sends faster than this is read again in the next round.
  constexpr int kReadsAtOnce = 16;
  char buffer[16 << 10];
  for (int i = 0; i < kReadsAtOnce && !closed_; ++i) {
    const ssize_t count = recv(socket_, buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    closed_ = count <= 0;
    const std::string_view arrived(buffer, static_cast<size_t>(std::max<ssize_t>(0, count)));
    size_t begin = 0;
    for (size_t end = arrived.find('\n'); end != arrived.npos; end = arrived.find('\n', begin)) {
      received_ += arrived.substr(begin, end - begin);
      if (!skipping_ && !received_.empty() && received_.size() <= kLongestLine) lines_.push_back(received_);
      received_.clear();
      skipping_ = false;
      begin = end + 1;
    }
    if (!skipping_) received_ += arrived.substr(begin);
    if (received_.size() > kLongestLine) {
      received_.clear();
      skipping_ = true;
    }
  }
}

std::optional<std::string> LineSocket::wait_for_line(double timeout_seconds) {
  const Deadline deadline(timeout_seconds);
  while (lines_.empty() && !closed_ && !deadline.passed()) {
    flush();
    wait_until_readable({socket_}, std::clamp(deadline.seconds_left(), 0.0, 0.1));
    read();
  }
  if (lines_.empty()) return std::nullopt;
  std::string first = std::move(lines_.front());
  lines_.erase(lines_.begin());
  return first;
}

LineListener::LineListener(const std::string& address) : socket_(-1), port_(0) {
  constexpr int kQueue = 4096;
  if (const std::optional<SocketAddress> local = address_of(address, 0)) {
    socket_ = socket(local->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int off = 0;  // "::" takes IPv4 connections too, whatever the system's default is
    if (local->family() == AF_INET6) setsockopt(socket_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(socket_, local->plain(), local->length) == 0 && listen(socket_, kQueue) == 0)
      port_ = port_of(socket_);
  }
  if (port_ == 0) {
    close(socket_);
    throw EnvironmentError(
        "This host gives no free TCP port, of which ranks need one to meet and one to report failures.");
  }
}

LineListener::~LineListener() {
  close(socket_);
}

std::optional<LineSocket> LineListener::accept() {
  const int connection = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  exhausted_ = connection < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
  return connection < 0 ? std::nullopt : std::optional<LineSocket>(LineSocket(connection));
}

void wait_until_readable(const std::vector<int>& descriptors, double timeout_seconds) {
  std::vector<pollfd> entries;
  for (const int descriptor : descriptors) entries.push_back({descriptor, POLLIN, 0});
  poll(entries.data(), entries.size(), static_cast<int>(1e3 * timeout_seconds));
}

}  // namespace adtrain
