#include "launch/MasterAddress.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/Clock.h"

namespace adtrain {
namespace {

class Socket {
 public:
  explicit Socket(const addrinfo& address)
      : descriptor_(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK, 0)) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  /// 0, or errno's value.
  int connect_within(const addrinfo& address, int milliseconds) const {
    if (connect(descriptor_, address.ai_addr, address.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    pollfd writable{.fd = descriptor_, .events = POLLOUT, .revents = 0};
    if (poll(&writable, 1, milliseconds) <= 0) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
  }

  void send_text(const std::string& text) const { send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL); }
  /// What arrives within this time; "" for nothing.
  std::string receive_some(int milliseconds) const {
    pollfd readable{.fd = descriptor_, .events = POLLIN, .revents = 0};
    char text[256];
    if (poll(&readable, 1, milliseconds) <= 0) return "";
    const ssize_t length = recv(descriptor_, text, sizeof text, 0);
    return length > 0 ? std::string(text, static_cast<size_t>(length)) : "";
  }

 private:
  int descriptor_;
};

/// At most 60 characters, with '?' for unprintable ones.
std::string first_line_of(const std::string& text) {
  constexpr size_t kShown = 60;
  std::string line;
  for (const char letter : text) {
    if (letter == '\n' || letter == '\r' || line.size() == kShown) break;
    line += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  return line;
}

std::string attempt(const std::string& host, int64_t port, int milliseconds) {
  const MasterAddress address(host, port);
  if (address.first() == nullptr) return address.trouble();
  const int error = Socket(*address.first()).connect_within(*address.first(), milliseconds);
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace

MasterAddress::MasterAddress(const std::string& host, int64_t port) : found_(nullptr, freeaddrinfo) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error == 0) {
    found_.reset(found);
  } else {
    trouble_ = gai_strerror(error);
  }
}

std::string wait_for_listener(const std::string& host, int64_t port, double timeout_seconds) {
  const Stopwatch watch;
  std::string earlier_trouble;
  while (true) {
    const double left = timeout_seconds - watch.seconds();
    const std::string trouble = attempt(host, port, static_cast<int>(std::max(1.0, left * 1000)));
    if (trouble.empty()) return "";
    // The last attempt is cut short, and its error would only say so.
    if (watch.seconds() >= timeout_seconds) return earlier_trouble.empty() ? trouble : earlier_trouble;
    earlier_trouble = trouble;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

std::string answer_of_listener(const std::string& host, int64_t port) {
  constexpr int kOfItsOwnAccord = 300, kWhenAsked = 1000;  // milliseconds
  const MasterAddress address(host, port);
  if (address.first() == nullptr) return "";
  const Socket connection(*address.first());
  if (connection.connect_within(*address.first(), kWhenAsked) != 0) return "";
  std::string answer = connection.receive_some(kOfItsOwnAccord);
  if (answer.empty()) {
    connection.send_text("HEAD / HTTP/1.0\r\n\r\n");
    answer = connection.receive_some(kWhenAsked);
  }
  return first_line_of(answer);
}

}  // namespace adtrain
