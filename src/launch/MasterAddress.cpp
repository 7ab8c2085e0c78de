#include "launch/MasterAddress.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/Text.h"
#include "launch/NetworkInterfaces.h"

namespace adtrain {
namespace {

class Socket {
 public:
  explicit Socket(const addrinfo& address)
      : descriptor_(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK, 0)),
        error_(descriptor_ < 0 ? errno : 0) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  /// 0, or errno's value.
  int connect_within(const addrinfo& address, int milliseconds) const {
    if (descriptor_ < 0) return error_;  // a host without IPv6, for example
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
  int error_;
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

/// Of the time that is left each address has an equal share. Where a name has several, one that swallows all
/// packets takes at most this long in each round.
constexpr int kMostOfSeveral = 3000;  // milliseconds, in which a lost packet is sent again once

/// One round: tries each of the addresses once.
FoundListener attempt(const std::string& host, int64_t port, int milliseconds) {
  const MasterAddress name(host, port);
  const std::vector<const addrinfo*> addresses = name.all();
  if (addresses.empty()) return {"", name.trouble(), /*is_known=*/false};
  const Stopwatch watch;
  std::vector<std::string> troubles;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const addrinfo& address = *addresses[i];
    const int left = milliseconds - static_cast<int>(watch.seconds() * 1000);
    int share = left / static_cast<int>(addresses.size() - i);
    if (addresses.size() > 1) share = std::min(share, kMostOfSeveral);
    const std::string numeric = numeric_address(address.ai_addr, address.ai_addrlen);
    const int error = Socket(address).connect_within(address, std::max(1, share));
    if (error == 0) return {numeric, ""};
    const std::string trouble = std::strerror(error);
    troubles.push_back(addresses.size() > 1 ? numeric + ": " + trouble : trouble);
  }
  return {"", join(troubles, "; ")};
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

std::vector<const addrinfo*> MasterAddress::all() const {
  std::vector<const addrinfo*> addresses;
  std::vector<std::string> known;  // /etc/hosts may name one twice
  for (const addrinfo* address = first(); address != nullptr; address = address->ai_next) {
    std::string numeric = numeric_address(address->ai_addr, address->ai_addrlen);
    if (std::find(known.begin(), known.end(), numeric) != known.end()) continue;
    known.push_back(std::move(numeric));
    addresses.push_back(address);
  }
  return addresses;
}

FoundListener find_listener(const std::string& host, int64_t port, double timeout_seconds) {
  const Stopwatch watch;
  std::string earlier_trouble;
  while (true) {
    const double left = timeout_seconds - watch.seconds();
    FoundListener found = attempt(host, port, static_cast<int>(std::max(1.0, left * 1000)));
    if (found.trouble.empty()) return found;
    // The last attempt is cut short, and its error would only say so.
    if (watch.seconds() >= timeout_seconds) {
      if (!earlier_trouble.empty()) found.trouble = earlier_trouble;
      return found;
    }
    earlier_trouble = found.trouble;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

std::string answer_of_listener(const std::string& host, int64_t port) {
  constexpr int kOfItsOwnAccord = 300, kWhenAsked = 1000;  // milliseconds
  const MasterAddress name(host, port);
  for (const addrinfo* address : name.all()) {
    const Socket connection(*address);
    if (connection.connect_within(*address, kWhenAsked) != 0) continue;
    std::string answer = connection.receive_some(kOfItsOwnAccord);
    if (answer.empty()) {
      connection.send_text("HEAD / HTTP/1.0\r\n\r\n");
      answer = connection.receive_some(kWhenAsked);
    }
    return first_line_of(answer);
  }
  return "";
}

}  // namespace adtrain
