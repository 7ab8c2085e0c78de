#include "distributed/failure/LineSocket.h"

#include <cerrno>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/Error.h"

namespace adtrain {
namespace {

sockaddr_in address_of(const std::string& address, int64_t port) {
  sockaddr_in socket_address{};
  socket_address.sin_family = AF_INET;
  socket_address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, address.c_str(), &socket_address.sin_addr);
  return socket_address;
}

const sockaddr* as_plain(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

bool becomes(int socket_, short event, double timeout_seconds) {
  pollfd entry = {socket_, event, 0};
  return poll(&entry, 1, static_cast<int>(1e3 * timeout_seconds)) == 1;
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
      pending_(std::move(other.pending_)),
      closed_(other.closed_) {}

LineSocket& LineSocket::operator=(LineSocket&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(pending_, other.pending_);
  std::swap(closed_, other.closed_);
  return *this;
}

std::optional<LineSocket> LineSocket::connect(const std::string& address, int64_t port,
                                              double timeout_seconds) {
  LineSocket connection(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in remote = address_of(address, port);
  if (::connect(connection.socket_, as_plain(remote), sizeof remote) != 0) {
    if (errno != EINPROGRESS || !becomes(connection.socket_, POLLOUT, timeout_seconds)) return std::nullopt;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(connection.socket_, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return std::nullopt;
  }
  return connection;
}

void LineSocket::send(const std::string& line) {
  constexpr double kPatience = 1;  // seconds: lines are short, so a full buffer means that nobody reads
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count > 0) sent += static_cast<size_t>(count);
    if (count < 0 && (errno != EAGAIN || !becomes(socket_, POLLOUT, kPatience))) return;
  }
}

std::vector<std::string> LineSocket::receive() {
  char buffer[4096];
  for (;;) {
    const ssize_t count = recv(socket_, buffer, sizeof buffer, 0);
    if (count > 0) {
      pending_.append(buffer, static_cast<size_t>(count));
      continue;
    }
    closed_ = closed_ || count == 0 || (errno != EAGAIN && errno != EINTR);
    break;
  }
  std::vector<std::string> lines;
  for (size_t end = pending_.find('\n'); end != std::string::npos; end = pending_.find('\n')) {
    lines.push_back(pending_.substr(0, end));
    pending_.erase(0, end + 1);
  }
  return lines;
}

std::optional<std::string> LineSocket::wait_for_line(double timeout_seconds) {
  const Deadline deadline(timeout_seconds);
  while (!deadline.passed() && !closed_) {
    wait_until_readable({socket_}, 0.1);
    const std::vector<std::string> lines = receive();
    if (lines.empty()) continue;
    std::string behind;
    for (size_t i = 1; i < lines.size(); ++i) behind += lines[i] + "\n";
    pending_.insert(0, behind);
    return lines.front();
  }
  return std::nullopt;
}

LineListener::LineListener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  constexpr int kQueue = 4096;
  sockaddr_in local = address_of("0.0.0.0", 0);
  socklen_t length = sizeof local;
  if (bind(socket_, as_plain(local), sizeof local) != 0 || listen(socket_, kQueue) != 0 ||
      getsockname(socket_, reinterpret_cast<sockaddr*>(&local), &length) != 0) {
    close(socket_);
    throw EnvironmentError(
        "This host gives no free TCP port, of which ranks need one to meet and one to report failures.");
  }
  port_ = ntohs(local.sin_port);
}

LineListener::~LineListener() {
  close(socket_);
}

std::optional<LineSocket> LineListener::accept() {
  const int connection = ::accept(socket_, nullptr, nullptr);
  return connection < 0 ? std::nullopt : std::optional<LineSocket>(LineSocket(connection));
}

void wait_until_readable(const std::vector<int>& descriptors, double timeout_seconds) {
  std::vector<pollfd> entries;
  for (const int descriptor : descriptors) entries.push_back({descriptor, POLLIN, 0});
  poll(entries.data(), entries.size(), static_cast<int>(1e3 * timeout_seconds));
}

}  // namespace adtrain
